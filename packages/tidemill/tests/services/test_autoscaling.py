"""Application Auto Scaling by boto3: targets and policies, and what the autoscaler makes of them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from tidemill.core.hosting import EndpointStatus
from tidemill.core.scaling import ACTIVITIES_KEPT, ScalableTarget, ScalingActivity

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
CONTAINER = {"Image": "tensorflow-inference:2.21.0-cpu", "ModelDataUrl": "s3://data/model.tar.gz"}
INSTANCES = "sagemaker:variant:DesiredInstanceCount"
CONCURRENCY = "sagemaker:variant:DesiredProvisionedConcurrency"
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/digits/variant/AllTraffic",
    "ScalableDimension": INSTANCES,
}
PER_INSTANCE = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
MINUTE_MS = 60_000


def create(sagemaker: Any, name: str = "digits", *, serverless: dict[str, int] | None = None, **config: Any) -> None:
    """Create an endpoint of one instance, or of a serverless variant."""
    sagemaker.create_model(ModelName=name, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    size = {"ServerlessConfig": serverless} if serverless else {"InstanceType": "local", "InitialInstanceCount": 1}
    variant = {"VariantName": "AllTraffic", "ModelName": name, **size}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant], **config)
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)


class Load:
    """A served endpoint whose minutes and requests a test decides."""

    def __init__(self, stage: Any, sagemaker: Any, runtime: Any, serve_model: Any) -> None:
        self._stage, self._sagemaker, self._runtime, self._serve_model = stage, sagemaker, runtime, serve_model
        self._served: set[str] = set()
        create(sagemaker)
        self.bring_up()
        stage.clock.ms += MINUTE_MS - stage.clock.ms % MINUTE_MS
        self.look()

    def look(self) -> None:
        asyncio.run(self._stage.autoscaler.look())

    def minute(self, calls: int, *, minutes: int = 1) -> None:
        """Send requests in each of some minutes, and look at the end of each."""
        for _ in range(minutes):
            for _ in range(calls):
                self._runtime.invoke_endpoint(EndpointName="digits", Body=b"x")
            self._stage.clock.ms += MINUTE_MS
            self.look()

    def bring_up(self) -> None:
        self._stage.bring_up("digits")
        for instance in self._stage.instances("digits"):
            if instance.job_id not in self._served:
                self._served.add(instance.job_id)
                self._serve_model(lambda request, body: (200, {}, body), instance=instance)

    def settle(self) -> int:
        """Let the driver of endpoints finish an update; return the number of instances."""
        if self.status == "Updating":
            self.bring_up()
        self.look()
        return self.count

    @property
    def status(self) -> str:
        return str(self._sagemaker.describe_endpoint(EndpointName="digits")["EndpointStatus"])

    @property
    def count(self) -> int:
        (variant,) = self._sagemaker.describe_endpoint(EndpointName="digits")["ProductionVariants"]
        return int(variant["DesiredInstanceCount"])


@pytest.fixture
def load(stage: Any, sagemaker: Any, runtime: Any, serve_model: Any) -> Load:
    return Load(stage, sagemaker, runtime, serve_model)


def track(autoscaling: Any, *, most: int = 4, least: int = 1, target: float = 2.0, **config: Any) -> None:
    """Register the target and give it a policy; requests are counted from the next complete minute on."""
    autoscaling.register_scalable_target(**TARGET, MinCapacity=least, MaxCapacity=most)
    autoscaling.put_scaling_policy(
        **TARGET,
        PolicyName="per-instance",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={
            "TargetValue": target,
            "PredefinedMetricSpecification": PER_INSTANCE,
            **config,
        },
    )


def activities(autoscaling: Any) -> list[dict[str, Any]]:
    return autoscaling.describe_scaling_activities(ServiceNamespace="sagemaker")["ScalingActivities"]


def test_a_variant_gains_and_loses_instances_with_its_requests_between_its_limits(autoscaling, load, sagemaker):
    track(autoscaling, most=3)
    load.look()
    load.minute(9)  # not complete when the counting began
    load.minute(9, minutes=2)
    assert load.count == 1, "two minutes are no trend"
    load.minute(9)
    assert (load.status, load.count) == ("Updating", 3), "9 requests need 5 instances, and 3 are allowed"
    (running,) = activities(autoscaling)
    assert running["StatusCode"] == "InProgress" and "EndTime" not in running
    assert running["Description"] == "Setting desired instance count to 3."
    assert "policy per-instance" in running["Cause"] and "above the target value 2" in running["Cause"]
    load.minute(9)
    assert len(activities(autoscaling)) == 1, "an update that runs is waited for"
    assert load.settle() == 3
    assert activities(autoscaling)[0]["StatusCode"] == "Successful"
    load.minute(4, minutes=14)
    assert load.count == 3, "the busy minutes are among the last 15"
    load.minute(4, minutes=1)
    assert (load.status, load.count) == ("Updating", 2), "4 requests need 2 instances"
    assert load.settle() == 2
    newest, oldest = activities(autoscaling)
    assert newest["Description"] == "Setting desired instance count to 2."
    assert newest["StatusCode"] == oldest["StatusCode"] == "Successful"
    load.minute(0, minutes=16)
    assert load.settle() == 1, "no requests need one instance"
    load.minute(0, minutes=20)
    assert (load.status, load.count) == ("InService", 1), "never below the minimum"
    assert sagemaker.describe_endpoint(EndpointName="digits")["ProductionVariants"][0]["CurrentInstanceCount"] == 1


def test_a_cooldown_delays_the_next_change_in_the_same_direction_only(autoscaling, load):
    track(autoscaling, ScaleOutCooldown=600, ScaleInCooldown=1800)
    load.look()
    load.minute(0)
    load.minute(3, minutes=3)
    assert load.settle() == 2
    load.minute(9, minutes=9)
    assert load.count == 2, "10 minutes have not passed"
    load.minute(9, minutes=1)
    assert load.settle() == 4
    load.minute(5, minutes=16)
    assert load.settle() == 3, "removal is not delayed by an addition"
    load.minute(0, minutes=29)
    assert load.count == 3, "30 minutes have not passed"
    load.minute(8, minutes=3)
    assert load.settle() == 4, "an addition is not delayed by a removal"


def test_a_change_of_the_limits_or_a_suspension_takes_effect_at_the_next_look(autoscaling, load):
    track(autoscaling)
    autoscaling.register_scalable_target(**TARGET, MinCapacity=2)
    load.look()
    assert load.settle() == 2
    assert activities(autoscaling)[0]["Cause"] == "minimum capacity was set to 2"
    autoscaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=1)
    load.look()
    assert load.settle() == 1
    assert activities(autoscaling)[0]["Cause"] == "maximum capacity was set to 1"
    suspended = {"DynamicScalingOutSuspended": True}
    autoscaling.register_scalable_target(**TARGET, MaxCapacity=20, SuspendedState=suspended)
    load.minute(0, minutes=6)
    load.minute(40, minutes=3)
    assert load.count == 1
    (shown,) = autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"]
    assert shown["SuspendedState"] == {
        "DynamicScalingInSuspended": False,
        "DynamicScalingOutSuspended": True,
        "ScheduledScalingSuspended": False,
    }
    autoscaling.register_scalable_target(**TARGET, SuspendedState={"DynamicScalingOutSuspended": False})
    load.look()
    assert load.settle() == 8, "an endpoint has at most 8 instances on one machine"


def test_a_policy_adds_no_instance_for_which_the_machine_has_no_room_and_a_limit_may(autoscaling, load, stage):
    stage.capacity = 2
    track(autoscaling, ScaleOutCooldown=0)
    load.look()
    load.minute(0)
    load.minute(9, minutes=3)
    assert load.settle() == 2
    load.minute(9, minutes=3)
    assert load.settle() == 2
    autoscaling.register_scalable_target(**TARGET, MinCapacity=3)
    load.look()
    assert load.settle() == 3
    load.minute(9, minutes=3)
    assert load.settle() == 3, "what a limit asked for stays"
    stage.capacity = 8
    load.minute(9)
    assert load.settle() == 4


def test_without_scale_in_instances_are_only_added_and_without_a_policy_nothing_changes(autoscaling, load):
    track(autoscaling, DisableScaleIn=True)
    load.look()
    load.minute(0)
    load.minute(5, minutes=3)
    assert load.settle() == 3
    load.minute(0, minutes=20)
    assert load.count == 3
    autoscaling.delete_scaling_policy(**TARGET, PolicyName="per-instance")
    load.minute(9, minutes=4)
    assert load.count == 3


def test_an_activity_shows_how_the_update_ended(autoscaling, load, stage, sagemaker):
    track(autoscaling)
    autoscaling.register_scalable_target(**TARGET, MinCapacity=2)
    load.look()
    stage.change_endpoint("digits", lambda endpoint: endpoint.rolled_back("The server ended"))
    load.look()
    (failed,) = activities(autoscaling)
    assert (failed["StatusCode"], "The server ended" in failed["StatusMessage"]) == ("Failed", True)
    steps = {"AdjustmentType": "ChangeInCapacity"}
    autoscaling.put_scaling_policy(**TARGET, PolicyName="steps", StepScalingPolicyConfiguration=steps)
    load.minute(0, minutes=4)
    assert len(activities(autoscaling)) == 2, "a failure is not repeated at once, nor after a notice about a policy"
    load.minute(0)
    assert (len(activities(autoscaling)), load.status) == (3, "Updating")
    stage.bring_up("digits")
    wanted = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 3}]
    sagemaker.update_endpoint_weights_and_capacities(EndpointName="digits", DesiredWeightsAndCapacities=wanted)
    stage.bring_up("digits")
    load.look()
    assert activities(autoscaling)[0]["StatusCode"] == "Overridden"


def test_notices_about_policies_do_not_displace_the_change_in_progress():
    change = ScalingActivity(
        activity_id="change", description="", cause="", begun_ms=1, status="InProgress", before=1, after=2
    )
    target = ScalableTarget(
        endpoint="e",
        endpoint_id="i",
        variant="v",
        dimension=INSTANCES,
        least=1,
        most=4,
        created_ms=1,
        suspended={},
        tags={},
    ).with_activity(change)
    for number in range(ACTIVITIES_KEPT + 1):
        notice = replace(change, activity_id=str(number), status="Unfulfilled", before=0, after=0)
        target = target.with_activity(notice)
    assert [each.activity_id for each in target.activities[:2]] == ["change", "2"]
    assert len(target.activities) == ACTIVITIES_KEPT
    ended = target.ended("Successful", "", at_ms=5)
    assert (ended.running, ended.added_ms) == (None, 5), "the cooldown begins"


@pytest.mark.parametrize("ending", ["deleted", "another"])
def test_a_target_ends_with_its_endpoint_and_is_none_of_a_later_one(autoscaling, load, stage, sagemaker, ending):
    track(autoscaling, least=2)
    sagemaker.delete_endpoint(EndpointName="digits")
    if ending == "another":
        sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
        stage.bring_up("digits")
    load.look()
    assert autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []
    if ending == "another":
        assert load.count == 1
        with pytest.raises(autoscaling.exceptions.ValidationException, match="required for a new scalable target"):
            autoscaling.register_scalable_target(**TARGET, MaxCapacity=2)


def test_a_decision_that_is_outdated_at_its_commit_is_dropped(autoscaling, load, stage, sagemaker, monkeypatch):
    track(autoscaling, least=2)

    def meanwhile(point: str) -> None:
        if point == "control.scaling.decided":
            autoscaling.deregister_scalable_target(**TARGET)

    monkeypatch.setattr("tidemill.control.scaling.autoscaler.faults.point", meanwhile)
    load.look()
    assert (load.status, load.count) == ("InService", 1)


def test_targets_and_policies_are_described_as_they_were_given(autoscaling, load):
    track(autoscaling, ScaleInCooldown=60)
    (target,) = autoscaling.describe_scalable_targets(
        ServiceNamespace="sagemaker", ResourceIds=[TARGET["ResourceId"]], ScalableDimension=INSTANCES
    )["ScalableTargets"]
    assert {name: target[name] for name in TARGET} == TARGET
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 4)
    (policy,) = autoscaling.describe_scaling_policies(
        ServiceNamespace="sagemaker", ResourceId=TARGET["ResourceId"], PolicyNames=["per-instance"]
    )["ScalingPolicies"]
    assert (policy["PolicyName"], policy["PolicyType"]) == ("per-instance", "TargetTrackingScaling")
    assert policy["TargetTrackingScalingPolicyConfiguration"] == {
        "TargetValue": 2.0,
        "PredefinedMetricSpecification": PER_INSTANCE,
        "ScaleInCooldown": 60,
    }
    arn = target["ScalableTargetARN"]
    autoscaling.tag_resource(ResourceARN=arn, Tags={"team": "vision", "old": "x"})
    autoscaling.untag_resource(ResourceARN=arn, TagKeys=["old"])
    assert autoscaling.list_tags_for_resource(ResourceARN=arn)["Tags"] == {"team": "vision"}
    with pytest.raises(autoscaling.exceptions.ResourceNotFoundException):
        autoscaling.list_tags_for_resource(ResourceARN=f"{arn}0")
    for name in ("a", "b"):
        config = {"AdjustmentType": "ChangeInCapacity"}
        autoscaling.put_scaling_policy(**TARGET, PolicyName=name, StepScalingPolicyConfiguration=config)
    pages = autoscaling.get_paginator("describe_scaling_policies").paginate(
        ServiceNamespace="sagemaker", PaginationConfig={"PageSize": 2}
    )
    assert [[each["PolicyName"] for each in page["ScalingPolicies"]] for page in pages] == [
        ["per-instance", "a"],
        ["b"],
    ]
    assert autoscaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"] == []
    assert autoscaling.describe_scalable_targets(ServiceNamespace="ecs")["ScalableTargets"] == []
    autoscaling.deregister_scalable_target(**TARGET)
    assert autoscaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"] == []


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"StepScalingPolicyConfiguration": {"AdjustmentType": "ChangeInCapacity"}}, "alarm"),
        (
            {
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 50.0,
                    "CustomizedMetricSpecification": {"MetricName": "CPU", "Namespace": "n", "Statistic": "Average"},
                },
            },
            "not measured",
        ),
    ],
)
def test_a_policy_that_cannot_be_followed_is_kept_and_an_activity_says_so(autoscaling, load, config, why):
    autoscaling.register_scalable_target(**TARGET, MinCapacity=1, MaxCapacity=2)
    autoscaling.put_scaling_policy(**TARGET, PolicyName="other", **config)
    assert len(autoscaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]) == 1
    (notice,) = activities(autoscaling)
    assert notice["StatusCode"] == "Unfulfilled"
    assert why in notice["StatusMessage"]
    load.minute(9, minutes=4)
    assert load.count == 1


def test_provisioned_concurrency_has_a_target_that_is_kept_without_effect(autoscaling, sagemaker, stage, refusal):
    create(sagemaker, serverless={"MemorySizeInMB": 1024, "MaxConcurrency": 5, "ProvisionedConcurrency": 1})
    target = {**TARGET, "ScalableDimension": CONCURRENCY}
    autoscaling.register_scalable_target(**target, MinCapacity=1, MaxCapacity=5)
    metric = {"PredefinedMetricType": "SageMakerVariantProvisionedConcurrencyUtilization"}
    autoscaling.put_scaling_policy(
        **target,
        PolicyName="use",
        PolicyType="TargetTrackingScaling",
        TargetTrackingScalingPolicyConfiguration={"TargetValue": 0.7, "PredefinedMetricSpecification": metric},
    )
    assert "one server" in activities(autoscaling)[0]["StatusMessage"]
    for token in ("later", "9" * 5000):
        refused = refusal(autoscaling.describe_scalable_targets, ServiceNamespace="sagemaker", NextToken=token)
        assert refused[:2] == (400, "InvalidNextTokenException")
    for members, named in (
        ({**target, "MinCapacity": 1, "MaxCapacity": 6}, "MaxConcurrency"),
        ({**TARGET, "MinCapacity": 1, "MaxCapacity": 2}, "serverless"),
    ):
        status, code, message = refusal(autoscaling.register_scalable_target, **members)
        assert (status, code) == (400, "ValidationException")
        assert named in message


TRACKING = {"PolicyName": "p", "PolicyType": "TargetTrackingScaling"}


@pytest.mark.parametrize(
    ("operation", "members", "code", "named"),
    [
        ("register_scalable_target", {"MinCapacity": 1}, "ValidationException", "minimum and maximum"),
        ("register_scalable_target", {"MinCapacity": 3, "MaxCapacity": 2}, "ValidationException", "less than minimum"),
        ("register_scalable_target", {"MinCapacity": 0, "MaxCapacity": 2}, "ValidationException", "asynchronous"),
        ("register_scalable_target", {"MinCapacity": 9, "MaxCapacity": 9}, "ValidationException", "8 instances"),
        (
            "register_scalable_target",
            {"ResourceId": "endpoint/digits", "MinCapacity": 1, "MaxCapacity": 2},
            "ValidationException",
            "endpoint/NAME/variant/VARIANT",
        ),
        (
            "register_scalable_target",
            {"ResourceId": "endpoint/nothing/variant/v", "MinCapacity": 1, "MaxCapacity": 2},
            "ValidationException",
            "does not exist",
        ),
        (
            "register_scalable_target",
            {"ResourceId": "endpoint/digits/variant/v", "MinCapacity": 1, "MaxCapacity": 2},
            "ValidationException",
            "AllTraffic",
        ),
        (
            "register_scalable_target",
            {"ScalableDimension": "sagemaker:inference-component:DesiredCopyCount"},
            "ValidationException",
            "inference components",
        ),
        ("register_scalable_target", {"ServiceNamespace": "ecs"}, "ValidationException", "only endpoints"),
        ("put_scaling_policy", TRACKING, "ObjectNotFoundException", "No scalable target"),
        ("delete_scaling_policy", {"PolicyName": "p"}, "ObjectNotFoundException", "No scalable target"),
        ("deregister_scalable_target", {}, "ObjectNotFoundException", "No scalable target"),
        (
            "put_scheduled_action",
            {"ScheduledActionName": "s", "Schedule": "rate(1 day)"},
            "UnknownOperationException",
            "RegisterScalableTarget",
        ),
    ],
)
def test_what_cannot_scale_is_refused_by_name(autoscaling, load, refusal, operation, members, code, named):
    found = refusal(getattr(autoscaling, operation), **{**TARGET, **members})
    assert found[:2] == (400, code)
    assert named in found[2]
    assert autoscaling.describe_scalable_targets(ServiceNamespace="sagemaker")["ScalableTargets"] == []


@pytest.mark.parametrize(
    ("members", "named"),
    [
        (TRACKING, "TargetTrackingScalingPolicyConfiguration"),
        ({**TRACKING, "StepScalingPolicyConfiguration": {}}, "no other configuration"),
        ({**TRACKING, "TargetTrackingScalingPolicyConfiguration": {"TargetValue": 1.0}}, "one of the two"),
        (
            {
                **TRACKING,
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 0.0,
                    "PredefinedMetricSpecification": PER_INSTANCE,
                },
            },
            "above 0",
        ),
        (
            {
                **TRACKING,
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 1.0,
                    "PredefinedMetricSpecification": {"PredefinedMetricType": "ECSServiceAverageCPUUtilization"},
                },
            },
            "SageMakerVariantInvocationsPerInstance",
        ),
        (
            {
                **TRACKING,
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 1.0,
                    "PredefinedMetricSpecification": PER_INSTANCE,
                },
            },
            "Only one TargetTrackingScaling policy",
        ),
        ({"PolicyName": "p", "PolicyType": "PredictiveScaling"}, "StepScaling"),
    ],
)
def test_a_policy_that_contradicts_itself_or_its_target_is_refused(autoscaling, load, refusal, members, named):
    track(autoscaling)
    status, code, message = refusal(autoscaling.put_scaling_policy, **TARGET, **members)
    assert (status, code) == (400, "ValidationException")
    assert named in message
    assert len(autoscaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]) == 1


def test_an_asynchronous_endpoint_may_have_the_minimum_zero_and_keeps_one_instance(autoscaling, sagemaker, stage):
    create(sagemaker, AsyncInferenceConfig={"OutputConfig": {"S3OutputPath": "s3://data/results"}})
    stage.bring_up("digits")
    autoscaling.register_scalable_target(**TARGET, MinCapacity=0, MaxCapacity=2)
    asyncio.run(stage.autoscaler.look())
    endpoint = stage.hosting.endpoint("digits")
    assert endpoint.status is EndpointStatus.IN_SERVICE
    assert len(stage.instances("digits")) == 1
