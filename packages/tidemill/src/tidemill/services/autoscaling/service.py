"""Scalable targets, their policies and their activities on the wire.

The namespaces of other services have nothing: their lists are empty.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.scaling.targets import ScalableTargets
from tidemill.core.names import ACCOUNT_ID
from tidemill.core.scaling import ScalableTarget, ScalingActivity, ScalingPolicy, policy_arn, target_arn
from tidemill.errors import AwsError
from tidemill.services.operations import Operations
from tidemill.services.pages import position_of
from tidemill.services.times import when
from tidemill.wire.exchange import Context

_NAMESPACE = "sagemaker"
_PAGE = 50
_ROLE = (
    f"arn:aws:iam::{ACCOUNT_ID}:role/aws-service-role/sagemaker.application-autoscaling.amazonaws.com"
    "/AWSServiceRoleForApplicationAutoScaling_SageMakerEndpoint"
)
_SUSPENDED = ("DynamicScalingInSuspended", "DynamicScalingOutSuspended", "ScheduledScalingSuspended")


class AutoScalingService(Operations):
    """Registers targets, and keeps their policies."""

    def __init__(self, targets: ScalableTargets, *, region: str) -> None:
        self._targets = targets
        self._region = region

    async def register_scalable_target(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"ScalableTargetARN": self._arn(await self._targets.register(request))}

    async def deregister_scalable_target(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._targets.deregister(request)
        return {}

    async def describe_scalable_targets(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        wanted = request.get("ResourceIds")
        found = [self._target(each) for each in await self._of(request) if wanted is None or each.resource_id in wanted]
        return _page("ScalableTargets", found, request)

    async def put_scaling_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Keep a policy. It has no alarms: the service follows its metric itself."""
        policy = await self._targets.put_policy(request)
        arn = policy_arn(request["ResourceId"], request["ScalableDimension"], policy.name, region=self._region)
        return {"PolicyARN": arn, "Alarms": []}

    async def delete_scaling_policy(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._targets.delete_policy(request)
        return {}

    async def describe_scaling_policies(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        wanted = request.get("PolicyNames")
        found = [
            self._policy(target, policy)
            for target in await self._of(request)
            for policy in target.policies
            if wanted is None or policy.name in wanted
        ]
        return _page("ScalingPolicies", found, request)

    async def describe_scaling_activities(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the latest activities, the newest first."""
        found = [(target, each) for target in await self._of(request) for each in reversed(target.activities)]
        found.sort(key=lambda pair: -pair[1].begun_ms)
        return _page("ScalingActivities", [_activity(*pair) for pair in found], request)

    async def describe_scheduled_actions(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return no action: PutScheduledAction is not implemented."""
        return {"ScheduledActions": []}

    async def list_tags_for_resource(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"Tags": (await self._tagged(request)).tags}

    async def tag_resource(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        def tagged(target: ScalableTarget) -> ScalableTarget:
            tags = {**target.tags, **request["Tags"]}
            if len(tags) > _PAGE:
                raise AwsError(
                    f"The target would have {len(tags)} tags; allowed are {_PAGE}", code="TooManyTagsException"
                )
            return replace(target, tags=tags)

        await self._change_tags(request, tagged)
        return {}

    async def untag_resource(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        def untagged(target: ScalableTarget) -> ScalableTarget:
            return replace(target, tags={k: v for k, v in target.tags.items() if k not in request["TagKeys"]})

        await self._change_tags(request, untagged)
        return {}

    async def _change_tags(
        self, request: Mapping[str, Any], change: Callable[[ScalableTarget], ScalableTarget]
    ) -> None:
        target = await self._tagged(request)
        if await self._targets.amend(target.name, change) is None:
            raise _no_resource(request["ResourceARN"])

    async def _tagged(self, request: Mapping[str, Any]) -> ScalableTarget:
        arn = request["ResourceARN"]
        for target in await self._targets.all():
            if self._arn(target) == arn:
                return target
        raise _no_resource(arn)

    async def _of(self, request: Mapping[str, Any]) -> list[ScalableTarget]:
        """Return the targets that a request is about, in the order of their names."""
        if request["ServiceNamespace"] != _NAMESPACE:
            return []
        resource, dimension = request.get("ResourceId"), request.get("ScalableDimension")
        return [
            each
            for each in await self._targets.all()
            if resource in (None, each.resource_id) and dimension in (None, each.dimension)
        ]

    def _arn(self, target: ScalableTarget) -> str:
        return target_arn(target.resource_id, target.dimension, region=self._region)

    def _target(self, target: ScalableTarget) -> dict[str, Any]:
        return {
            **_names(target),
            "MinCapacity": target.least,
            "MaxCapacity": target.most,
            "RoleARN": _ROLE,
            "CreationTime": when(target.created_ms),
            "SuspendedState": {name: target.suspended.get(name, False) for name in _SUSPENDED},
            "ScalableTargetARN": self._arn(target),
        }

    def _policy(self, target: ScalableTarget, policy: ScalingPolicy) -> dict[str, Any]:
        return {
            **_names(target),
            "PolicyARN": policy_arn(target.resource_id, target.dimension, policy.name, region=self._region),
            "PolicyName": policy.name,
            "PolicyType": policy.kind,
            f"{policy.kind}PolicyConfiguration": policy.config,
            "Alarms": [],
            "CreationTime": when(policy.created_ms),
        }


def _names(target: ScalableTarget) -> dict[str, Any]:
    return {
        "ServiceNamespace": _NAMESPACE,
        "ResourceId": target.resource_id,
        "ScalableDimension": target.dimension,
    }


def _activity(target: ScalableTarget, activity: ScalingActivity) -> dict[str, Any]:
    return {
        **_names(target),
        "ActivityId": activity.activity_id,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": when(activity.begun_ms),
        **({"EndTime": when(activity.ended_ms)} if activity.ended_ms else {}),
        "StatusCode": activity.status,
        **({"StatusMessage": activity.message} if activity.message else {}),
    }


def _page(member: str, found: list[dict[str, Any]], request: Mapping[str, Any]) -> dict[str, Any]:
    """Return one page of a list. The token is the position of the next page.

    Raises:
        AwsError: InvalidNextTokenException.
    """
    token, size = request.get("NextToken"), max(1, min(request.get("MaxResults", _PAGE), _PAGE))
    start = position_of(token or "0")
    if start is None:
        raise AwsError(
            f"NextToken is {token!r}; give the one of the last reply, or none", code="InvalidNextTokenException"
        )
    shown = found[start : start + size]
    more = start + size < len(found)
    return {member: shown, **({"NextToken": str(start + size)} if more else {})}


def _no_resource(arn: str) -> AwsError:
    return AwsError(
        f"Resource {arn} not found: it is the ARN of no registered scalable target",
        code="ResourceNotFoundException",
        members={"ResourceName": arn},
    )
