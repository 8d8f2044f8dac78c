"""Models, endpoint configurations and endpoints by boto3: their descriptions, and refusals."""

from datetime import UTC, datetime
from typing import Any

import pytest

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
ARN = "arn:aws:sagemaker:us-west-2:000000000000"
CONTAINER = {
    "Image": "tensorflow-inference:2.21.0-cpu",
    "ModelDataUrl": "s3://data/model.tar.gz",
    "Environment": {"SAGEMAKER_TFS_NGINX_LOGLEVEL": "error"},
}
VARIANT = {"VariantName": "AllTraffic", "ModelName": "digits", "InstanceType": "local", "InitialInstanceCount": 2}
CREATED = datetime.fromtimestamp(1_700_000_000, tz=UTC)


@pytest.fixture
def model(sagemaker: Any) -> str:
    sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    return "digits"


@pytest.fixture
def config(sagemaker: Any, model: str) -> str:
    sagemaker.create_endpoint_config(EndpointConfigName="digits", ProductionVariants=[VARIANT])
    return "digits"


@pytest.fixture
def endpoint(sagemaker: Any, config: str) -> str:
    sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
    return "digits"


def shown(reply: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in reply.items() if name != "ResponseMetadata"}


# Models


def test_a_model_is_described_as_it_was_created(sagemaker):
    reply = sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    assert reply["ModelArn"] == f"{ARN}:model/digits"
    assert shown(sagemaker.describe_model(ModelName="digits")) == {
        "ModelName": "digits",
        "ModelArn": f"{ARN}:model/digits",
        "ExecutionRoleArn": ROLE,
        "PrimaryContainer": CONTAINER,
        "CreationTime": CREATED,
        "EnableNetworkIsolation": False,
    }


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({}, "containers"),
        ({"Containers": [CONTAINER, CONTAINER]}, "containers"),
        ({"PrimaryContainer": CONTAINER, "Containers": [CONTAINER]}, "containers"),
        ({"PrimaryContainer": {**CONTAINER, "ModelDataUrl": "https://data/model"}}, "modelDataUrl"),
        ({"PrimaryContainer": {**CONTAINER, "Mode": "MultiModel"}}, "modelDataUrl"),
        (
            {
                "PrimaryContainer": {
                    "Image": "sagemaker-tensorflow:1.12.0-cpu-py3",
                    "ModelDataUrl": "s3://data/models/",
                    "Mode": "MultiModel",
                }
            },
            "image",
        ),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_and_not_kept(sagemaker, refusal, members, named):
    status, code, message = refusal(sagemaker.create_model, ModelName="digits", ExecutionRoleArn=ROLE, **members)
    assert (status, code) == (400, "ValidationException")
    assert named in message
    assert sagemaker.list_models()["Models"] == []


# Endpoint configurations


def test_a_configuration_is_described_as_it_was_created(sagemaker, model):
    members = {"ProductionVariants": [VARIANT], "DataCaptureConfig": _capture(enabled=False)}
    reply = sagemaker.create_endpoint_config(EndpointConfigName="digits", **members)
    assert reply["EndpointConfigArn"] == f"{ARN}:endpoint-config/digits"
    assert shown(sagemaker.describe_endpoint_config(EndpointConfigName="digits")) == {
        "EndpointConfigName": "digits",
        "EndpointConfigArn": f"{ARN}:endpoint-config/digits",
        "CreationTime": CREATED,
        **members,
    }


def _blue_green(kind: str) -> dict[str, Any]:
    traffic = {"Type": kind, "WaitIntervalInSeconds": 0}
    policy = {"TrafficRoutingConfiguration": traffic, "MaximumExecutionTimeoutInSeconds": 600}
    return {"BlueGreenUpdatePolicy": policy}


def _capture(*, enabled: bool) -> dict[str, Any]:
    return {
        "EnableCapture": enabled,
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": "s3://data/capture",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"ProductionVariants": [{**VARIANT, "ModelName": "other"}]}, 'Could not find model "'),
        ({"ProductionVariants": [VARIANT, VARIANT]}, "productionVariants.2.member.variantName"),
        ({"ProductionVariants": [{**VARIANT, "VariantName": f"v{i}"} for i in range(5)]}, "10 instances"),
        ({"ProductionVariants": [{**VARIANT, "InitialVariantWeight": 0}]}, "sum of all variant weights"),
        ({"ProductionVariants": [{**VARIANT, "InitialInstanceCount": 9}]}, "initialInstanceCount"),
        ({"ProductionVariants": [{"VariantName": "v", "InstanceType": "local"}]}, "modelName"),
        (
            {
                "ProductionVariants": [VARIANT],
                "DataCaptureConfig": {**_capture(enabled=True), "DestinationS3Uri": "https://data/capture"},
            },
            "dataCaptureConfig.destinationS3Uri",
        ),
    ],
)
def test_a_configuration_that_cannot_be_served_is_refused_and_not_kept(sagemaker, model, refusal, members, named):
    status, code, message = refusal(sagemaker.create_endpoint_config, EndpointConfigName="digits", **members)
    assert (status, code) == (400, "ValidationException")
    assert named in message
    assert sagemaker.list_endpoint_configs()["EndpointConfigs"] == []


# Endpoints


def test_a_new_endpoint_is_creating_and_is_handed_to_its_driver(sagemaker, config, stage):
    reply = sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits")
    assert reply["EndpointArn"] == f"{ARN}:endpoint/digits"
    assert stage.woken == ["digits"]
    found = shown(sagemaker.describe_endpoint(EndpointName="digits"))
    pending = found.pop("PendingDeploymentSummary")
    assert (pending["EndpointConfigName"], pending["ProductionVariants"][0]["CurrentInstanceCount"]) == ("digits", 0)
    assert found == {
        "EndpointName": "digits",
        "EndpointArn": f"{ARN}:endpoint/digits",
        "EndpointConfigName": "digits",
        "EndpointStatus": "Creating",
        "CreationTime": CREATED,
        "LastModifiedTime": CREATED,
    }


def test_an_endpoint_in_service_shows_its_variant(sagemaker, endpoint, stage):
    stage.clock.ms += 60_000
    stage.bring_up(endpoint)
    found = sagemaker.describe_endpoint(EndpointName=endpoint)
    assert found["EndpointStatus"] == "InService"
    assert (found["LastModifiedTime"] - found["CreationTime"]).total_seconds() == 60
    (variant,) = found["ProductionVariants"]
    assert variant["VariantName"] == "AllTraffic"
    assert (variant["CurrentInstanceCount"], variant["DesiredInstanceCount"]) == (2, 2)
    assert (variant["CurrentWeight"], variant["DesiredWeight"]) == (1.0, 1.0)
    assert variant["DeployedImages"][0]["SpecifiedImage"] == CONTAINER["Image"]


def test_a_failed_endpoint_shows_its_reason(sagemaker, endpoint, stage):
    stage.change_endpoint(endpoint, lambda now: now.rolled_back("the model has no signature"))
    found = sagemaker.describe_endpoint(EndpointName=endpoint)
    assert (found["EndpointStatus"], found["FailureReason"]) == ("Failed", "the model has no signature")
    assert "ProductionVariants" not in found


def test_an_endpoint_without_its_configuration_or_model_is_refused(sagemaker, config, refusal, stage):
    missing = refusal(sagemaker.create_endpoint, EndpointName="e", EndpointConfigName="other")
    assert missing[:2] == (400, "ValidationException")
    assert missing[2] == f'Could not find endpoint configuration "{ARN}:endpoint-config/other".'
    sagemaker.delete_model(ModelName="digits")
    missing = refusal(sagemaker.create_endpoint, EndpointName="e", EndpointConfigName="digits")
    assert missing[2] == f'Could not find model "{ARN}:model/digits".'
    assert stage.woken == []


def test_an_endpoint_outlives_its_configuration_and_its_model(sagemaker, endpoint, stage):
    sagemaker.delete_endpoint_config(EndpointConfigName="digits")
    sagemaker.delete_model(ModelName="digits")
    stage.bring_up(endpoint)
    assert sagemaker.describe_endpoint(EndpointName=endpoint)["ProductionVariants"][0]["VariantName"] == "AllTraffic"


def test_a_deleted_endpoint_is_deleting_until_its_driver_is_done_and_frees_its_name(
    sagemaker, endpoint, stage, refusal
):
    stage.woken.clear()
    sagemaker.delete_endpoint(EndpointName=endpoint)
    assert stage.woken == [endpoint]
    assert sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] == "Deleting"
    status, code, message = refusal(sagemaker.delete_endpoint, EndpointName=endpoint)
    assert (status, code) == (400, "ValidationException")
    assert "is being deleted" in message
    sagemaker.create_endpoint(EndpointName=endpoint, EndpointConfigName="digits")
    assert sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] == "Creating"


# Updates


def test_an_update_serves_as_before_until_the_new_configuration_has_come_up(sagemaker, endpoint, stage):
    stage.bring_up(endpoint)
    old = stage.instances(endpoint)
    canary = {**VARIANT, "VariantName": "canary", "InitialInstanceCount": 1}
    config = {"ProductionVariants": [canary], "DataCaptureConfig": _capture(enabled=True)}
    sagemaker.create_endpoint_config(EndpointConfigName="next", **config)
    stage.woken.clear()
    reply = sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName="next")
    assert (reply["EndpointArn"], stage.woken) == (f"{ARN}:endpoint/digits", ["digits"])
    found = sagemaker.describe_endpoint(EndpointName=endpoint)
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("Updating", "digits")
    assert found["ProductionVariants"][0]["VariantName"] == "AllTraffic"
    pending = found["PendingDeploymentSummary"]
    assert (pending["EndpointConfigName"], pending["ProductionVariants"][0]["VariantName"]) == ("next", "canary")
    assert "DataCaptureConfig" not in found
    stage.bring_up(endpoint)
    found = sagemaker.describe_endpoint(EndpointName=endpoint)
    assert (found["EndpointStatus"], found["EndpointConfigName"]) == ("InService", "next")
    assert [each["VariantName"] for each in found["ProductionVariants"]] == ["canary"]
    assert found["DataCaptureConfig"]["CurrentSamplingPercentage"] == 100
    assert "PendingDeploymentSummary" not in found
    assert stage.hosting.endpoint(endpoint).retiring == old


def test_an_update_that_is_rolled_back_keeps_the_old_configuration_and_has_a_reason(sagemaker, endpoint, stage):
    stage.bring_up(endpoint)
    old = stage.instances(endpoint)
    sagemaker.update_endpoint(EndpointName=endpoint, EndpointConfigName="digits")
    stage.change_endpoint(endpoint, lambda now: now.rolled_back("the model has no signature"))
    found = sagemaker.describe_endpoint(EndpointName=endpoint)
    assert (found["EndpointStatus"], found["FailureReason"]) == ("InService", "the model has no signature")
    assert stage.instances(endpoint) == old
    assert len(stage.hosting.endpoint(endpoint).retiring) == 2


@pytest.mark.parametrize(
    ("excluded", "weight", "count", "captures"),
    [
        ((), 5.0, 3, False),
        (("DesiredWeight",), 1.0, 3, False),
        (("DesiredInstanceCount", "DataCaptureConfig"), 5.0, 2, True),
    ],
)
def test_an_update_retains_what_it_is_asked_to(sagemaker, endpoint, stage, excluded, weight, count, captures):
    stage.bring_up(endpoint)
    wanted = [{"VariantName": "AllTraffic", "DesiredWeight": 5.0, "DesiredInstanceCount": 3}]
    sagemaker.update_endpoint_weights_and_capacities(EndpointName=endpoint, DesiredWeightsAndCapacities=wanted)
    stage.bring_up(endpoint)
    sagemaker.create_endpoint_config(
        EndpointConfigName="next", ProductionVariants=[VARIANT], DataCaptureConfig=_capture(enabled=True)
    )
    sagemaker.update_endpoint(
        EndpointName=endpoint,
        EndpointConfigName="next",
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": each} for each in excluded],
    )
    stage.bring_up(endpoint)
    found = sagemaker.describe_endpoint(EndpointName=endpoint)
    (variant,) = found["ProductionVariants"]
    assert (variant["CurrentWeight"], variant["CurrentInstanceCount"]) == (weight, count)
    assert ("DataCaptureConfig" in found) is captures


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ({"EndpointConfigName": "none"}, "Could not find endpoint configuration"),
        (
            {"ExcludeRetainedVariantProperties": [{"VariantPropertyType": "DesiredWeight"}]},
            "excludeRetainedVariantProperties",
        ),
        ({"DeploymentConfig": _blue_green("CANARY")}, "deploymentConfig.blueGreenUpdatePolicy"),
        (
            {"DeploymentConfig": {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": "a"}]}}},
            "deploymentConfig.autoRollbackConfiguration",
        ),
    ],
)
def test_an_update_that_cannot_be_honored_is_refused_and_changes_nothing(
    sagemaker, endpoint, stage, refusal, members, named
):
    stage.bring_up(endpoint)
    wanted = {"EndpointName": endpoint, "EndpointConfigName": "digits", **members}
    status, code, message = refusal(sagemaker.update_endpoint, **wanted)
    assert (status, code) == (400, "ValidationException")
    assert named in message
    assert sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointStatus"] == "InService"


def test_the_deployment_config_is_shown_and_retained(sagemaker, endpoint, stage):
    stage.bring_up(endpoint)
    config = _blue_green("ALL_AT_ONCE")
    update = {"EndpointName": endpoint, "EndpointConfigName": "digits"}
    for members in ({"DeploymentConfig": config}, {"RetainDeploymentConfig": True}):
        sagemaker.update_endpoint(**update, **members)
        assert stage.hosting.endpoint(endpoint).starting.limit_s == 600
        stage.bring_up(endpoint)
        assert sagemaker.describe_endpoint(EndpointName=endpoint)["LastDeploymentConfig"] == config
    sagemaker.update_endpoint(**update)
    assert "LastDeploymentConfig" not in sagemaker.describe_endpoint(EndpointName=endpoint)


def test_an_endpoint_that_is_moving_or_has_failed_is_not_updated(sagemaker, endpoint, stage, refusal):
    update = {"EndpointName": endpoint, "EndpointConfigName": "digits"}
    assert "in-progress endpoint" in refusal(sagemaker.update_endpoint, **update)[2]
    stage.change_endpoint(endpoint, lambda now: now.rolled_back("no model"))
    assert "failed endpoint" in refusal(sagemaker.update_endpoint, **update)[2]
    wanted = [{"VariantName": "AllTraffic", "DesiredWeight": 1.0}]
    resize = sagemaker.update_endpoint_weights_and_capacities
    message = refusal(resize, EndpointName=endpoint, DesiredWeightsAndCapacities=wanted)[2]
    assert "failed endpoint" in message


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ([{"VariantName": "other"}], "desiredWeightsAndCapacities.1.member.variantName"),
        ([{"VariantName": "AllTraffic"}, {"VariantName": "AllTraffic"}], "it is named twice"),
        ([{"VariantName": "AllTraffic", "DesiredInstanceCount": 9}], "desiredInstanceCount"),
        ([{"VariantName": "AllTraffic", "DesiredInstanceCount": 0}], "desiredInstanceCount"),
        ([{"VariantName": "AllTraffic", "DesiredWeight": 0}], "sum of all variant weights"),
    ],
)
def test_weights_and_capacities_that_cannot_be_served_are_refused(sagemaker, endpoint, stage, refusal, wanted, named):
    stage.bring_up(endpoint)
    resize = sagemaker.update_endpoint_weights_and_capacities
    status, code, message = refusal(resize, EndpointName=endpoint, DesiredWeightsAndCapacities=wanted)
    assert (status, code) == (400, "ValidationException")
    assert named in message


# All three kinds


@pytest.mark.parametrize(
    ("describe", "delete", "member", "title", "kind"),
    [
        ("describe_model", "delete_model", "ModelName", "model", "model"),
        (
            "describe_endpoint_config",
            "delete_endpoint_config",
            "EndpointConfigName",
            "endpoint configuration",
            "endpoint-config",
        ),
        ("describe_endpoint", "delete_endpoint", "EndpointName", "endpoint", "endpoint"),
    ],
)
def test_a_missing_resource_could_not_be_found(sagemaker, refusal, describe, delete, member, title, kind):
    for call in (describe, delete):
        found = refusal(getattr(sagemaker, call), **{member: "none"})
        assert found == (400, "ValidationException", f'Could not find {title} "{ARN}:{kind}/none".')


def test_a_name_in_use_is_refused_and_its_resource_stays(sagemaker, endpoint, refusal):
    before = shown(sagemaker.describe_model(ModelName="digits"))
    for call in (
        lambda: sagemaker.create_model(ModelName="digits", ExecutionRoleArn=ROLE + "2", PrimaryContainer=CONTAINER),
        lambda: sagemaker.create_endpoint_config(EndpointConfigName="digits", ProductionVariants=[VARIANT]),
        lambda: sagemaker.create_endpoint(EndpointName="digits", EndpointConfigName="digits"),
    ):
        status, code, message = refusal(call)
        assert (status, code) == (400, "ValidationException")
        assert message.startswith("Cannot create already existing")
    assert shown(sagemaker.describe_model(ModelName="digits")) == before


def test_a_deleted_resource_loses_its_tags_and_its_name_is_free(sagemaker, model, refusal):
    arn = sagemaker.describe_model(ModelName=model)["ModelArn"]
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "team", "Value": "vision"}])
    sagemaker.delete_model(ModelName=model)
    assert refusal(sagemaker.describe_model, ModelName=model)[1] == "ValidationException"
    sagemaker.create_model(ModelName=model, ExecutionRoleArn=ROLE, PrimaryContainer=CONTAINER)
    assert sagemaker.list_tags(ResourceArn=arn)["Tags"] == []
