"""Permissions that the operations of Application Auto Scaling need.

Who registers a target lets the service change the endpoint, so this also needs the permission to change it.
"""

from collections.abc import Mapping

from tidemill.core.names import sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.core.scaling import target_arn
from tidemill.services.authorization.rule import Members, Rule, by_name, everything

_SERVICE = "application-autoscaling"


def _target(request: Members, region: str) -> str:
    return target_arn(request["ResourceId"], request["ScalableDimension"], region=region)


def _register(request: Members, region: str) -> tuple[Permission, ...]:
    endpoint = request["ResourceId"].removeprefix("endpoint/").partition("/")[0]
    target = _target(request, region)
    needs = (
        Permission(f"{_SERVICE}:RegisterScalableTarget", target),
        Permission("sagemaker:UpdateEndpointWeightsAndCapacities", sagemaker_arn("endpoint", endpoint, region=region)),
    )
    return (*needs, Permission(f"{_SERVICE}:TagResource", target)) if request.get("Tags") else needs


AUTO_SCALING: Mapping[str, Rule] = {
    "RegisterScalableTarget": _register,
    **by_name(_SERVICE, _target, "DeregisterScalableTarget", "PutScalingPolicy", "DeleteScalingPolicy"),
    **by_name(_SERVICE, everything, "DescribeScalableTargets", "DescribeScalingPolicies", "DescribeScalingActivities"),
    **by_name(_SERVICE, everything, "DescribeScheduledActions"),
    **by_name(
        _SERVICE, lambda request, region: request["ResourceARN"], "ListTagsForResource", "TagResource", "UntagResource"
    ),
}
"""By operation."""
