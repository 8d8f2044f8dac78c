"""Permissions that the operations of Application Auto Scaling need.

Who registers a target lets the service change the endpoint, so this also needs the permission to change it.
"""

from collections.abc import Mapping

from tidemill.core.names import sagemaker_arn
from tidemill.core.policy import Permission
from tidemill.core.scaling import target_arn
from tidemill.services.authorization.rule import Members, Rule


def _on_target(operation: str) -> Rule:
    def rule(request: Members, region: str) -> tuple[Permission, ...]:
        arn = target_arn(request["ResourceId"], request["ScalableDimension"], region=region)
        return (Permission(f"application-autoscaling:{operation}", arn),)

    return rule


def _on_everything(operation: str) -> Rule:
    return lambda request, region: (Permission(f"application-autoscaling:{operation}", "*"),)


def _on_tags(operation: str) -> Rule:
    return lambda request, region: (Permission(f"application-autoscaling:{operation}", request["ResourceARN"]),)


def _register(request: Members, region: str) -> tuple[Permission, ...]:
    endpoint = request["ResourceId"].removeprefix("endpoint/").partition("/")[0]
    changes = Permission(
        "sagemaker:UpdateEndpointWeightsAndCapacities", sagemaker_arn("endpoint", endpoint, region=region)
    )
    needs = (*_on_target("RegisterScalableTarget")(request, region), changes)
    if not request.get("Tags"):
        return needs
    return (*needs, Permission("application-autoscaling:TagResource", needs[0].resource))


AUTO_SCALING: Mapping[str, Rule] = {
    "RegisterScalableTarget": _register,
    **{name: _on_target(name) for name in ("DeregisterScalableTarget", "PutScalingPolicy", "DeleteScalingPolicy")},
    **{
        name: _on_everything(name)
        for name in (
            *("DescribeScalableTargets", "DescribeScalingPolicies", "DescribeScalingActivities"),
            "DescribeScheduledActions",
        )
    },
    **{name: _on_tags(name) for name in ("ListTagsForResource", "TagResource", "UntagResource")},
}
"""By operation."""
