"""Rows of Application Auto Scaling."""

from collections.abc import Mapping

from tidemill.core.compatibility.rows import Honored, Recorded, Refused, Rows, honored
from tidemill.core.scaling import CONCURRENCY, INSTANCES

_ELSEWHERE = Honored("other namespaces have nothing: their lists are empty")
_LISTED: Rows = {
    "ServiceNamespace": _ELSEWHERE,
    "ScalableDimension": Honored(),
    "MaxResults": Honored("at most 50"),
    "NextToken": Honored(),
}
_TARGET: Rows = {
    "ServiceNamespace": Honored(only=("sagemaker",), instead="only endpoints scale here"),
    "ResourceId": Honored("`endpoint/NAME/variant/VARIANT`"),
    "ScalableDimension": Honored(
        f"`{CONCURRENCY}` is recorded: one server answers all requests of a serverless variant",
        only=(INSTANCES, CONCURRENCY),
        instead="there are no inference components",
    ),
}
_TRACKING = "TargetTrackingScalingPolicyConfiguration"

OPERATIONS: Mapping[str, Rows] = {
    "RegisterScalableTarget": {
        **_TARGET,
        "MinCapacity": Honored("at least 1, of an asynchronous endpoint 0, which keeps one instance"),
        "MaxCapacity": Honored("an endpoint has at most 8 instances on one machine, regardless of this number"),
        "RoleARN": Recorded("the service scales its own endpoints; the role of AWS is shown, as on AWS"),
        **honored("SuspendedState", "SuspendedState.DynamicScalingInSuspended"),
        **honored("SuspendedState.DynamicScalingOutSuspended"),
        "SuspendedState.ScheduledScalingSuspended": Recorded("there are no scheduled actions"),
        "Tags": Honored(),
    },
    "DeregisterScalableTarget": _TARGET,
    "DescribeScalableTargets": {**_LISTED, "ResourceIds": Honored()},
    "PutScalingPolicy": {
        **_TARGET,
        "PolicyName": Honored(),
        "PolicyType": Honored("`PredictiveScaling` is refused", only=("StepScaling", "TargetTrackingScaling")),
        "StepScalingPolicyConfiguration": Recorded(
            "an alarm would start it, and alarms are kept without being evaluated; a scaling activity says so"
        ),
        _TRACKING: Honored(),
        f"{_TRACKING}.TargetValue": Honored("above 0"),
        f"{_TRACKING}.PredefinedMetricSpecification": Honored(
            "`SageMakerVariantInvocationsPerInstance`. Other metrics of variants are recorded, and a scaling activity"
            " says so; those of other services are refused",
            in_part=True,
        ),
        f"{_TRACKING}.PredefinedMetricSpecification.PredefinedMetricType": Honored(),
        f"{_TRACKING}.PredefinedMetricSpecification.ResourceLabel": Recorded("the metric is that of the target"),
        f"{_TRACKING}.CustomizedMetricSpecification": Recorded(
            "the metric is not followed; a scaling activity says so. Use the predefined one"
        ),
        f"{_TRACKING}.ScaleOutCooldown": Honored("300 s by default"),
        f"{_TRACKING}.ScaleInCooldown": Honored("300 s by default"),
        f"{_TRACKING}.DisableScaleIn": Honored(),
        "PredictiveScalingPolicyConfiguration": Refused(
            "nothing is forecast here; give a TargetTrackingScalingPolicyConfiguration"
        ),
    },
    "DescribeScalingPolicies": {**_LISTED, "ResourceId": Honored(), "PolicyNames": Honored()},
    "DeleteScalingPolicy": {**_TARGET, "PolicyName": Honored()},
    "DescribeScalingActivities": {
        **_LISTED,
        "ResourceId": Honored("a target keeps its latest 100 activities, and takes them with it"),
        "IncludeNotScaledActivities": Recorded("what changed nothing is no activity"),
    },
    "DescribeScheduledActions": {
        **_LISTED,
        "ResourceId": Recorded("the list is empty: PutScheduledAction is not implemented"),
        "ScheduledActionNames": Recorded("the list is empty"),
    },
    "ListTagsForResource": {"ResourceARN": Honored()},
    "TagResource": {"ResourceARN": Honored(), "Tags": Honored()},
    "UntagResource": {"ResourceARN": Honored(), "TagKeys": Honored()},
}
