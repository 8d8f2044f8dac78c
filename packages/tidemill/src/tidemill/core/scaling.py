"""Scalable targets, scaling policies and scaling activities of Application Auto Scaling, and what a policy decides.

A target is one property of a production variant. Its policies and its latest activities are stored in one document with
it, so that a decision and what led to it are one commit.
"""

import hashlib
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemill.core.documents import Document
from tidemill.core.names import ACCOUNT_ID

INSTANCES = "sagemaker:variant:DesiredInstanceCount"
CONCURRENCY = "sagemaker:variant:DesiredProvisionedConcurrency"
INVOCATIONS = "SageMakerVariantInvocationsPerInstance"
"""The metric that a target tracking policy can follow: requests per minute, divided by the instances."""
ACTIVITIES_KEPT = 100
_COOLDOWN_S = 300
_OUT_MINUTES, _IN_MINUTES = 3, 15
_IN_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """What a variant did in one minute.

    Attributes:
        calls: Its requests.
        instances: The number of instances that answered them; at least 1.
    """

    calls: int
    instances: int

    @property
    def per_instance(self) -> float:
        """Requests per instance."""
        return self.calls / self.instances


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPolicy:
    """One policy of a target.

    Attributes:
        name: PolicyName.
        kind: PolicyType: ``TargetTrackingScaling`` or ``StepScaling``.
        config: Its configuration, by botocore's member names.
        created_ms: Milliseconds since the epoch.
    """

    name: str
    kind: str
    config: Mapping[str, Any]
    created_ms: int

    @property
    def metric(self) -> Any:
        """The specification of the metric that a target tracking policy follows; None for a step policy."""
        return self.config.get("PredefinedMetricSpecification") or self.config.get("CustomizedMetricSpecification")

    @property
    def has_effect(self) -> bool:
        """Whether this service follows the policy. Others are kept and shown."""
        return self.config.get("PredefinedMetricSpecification", {}).get("PredefinedMetricType") == INVOCATIONS

    @property
    def scales_in(self) -> bool:
        """Whether it removes instances."""
        return not self.config.get("DisableScaleIn", False)

    def cooldown_ms(self, *, out: bool) -> int:
        """Return how long no further scaling follows one in the same direction, in milliseconds.

        Args:
            out: Whether instances are added.
        """
        return int(self.config.get("ScaleOutCooldown" if out else "ScaleInCooldown", _COOLDOWN_S)) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingActivity:
    """One change of a variant's instance count, or a notice.

    Attributes:
        activity_id: Unique id.
        cause: Why.
        begun_ms: Milliseconds since the epoch.
        status: ``InProgress``, ``Successful``, ``Failed``, ``Overridden`` (another update came between) or
            ``Unfulfilled`` (a policy is kept without effect).
        message: Details of the status.
        ended_ms: Milliseconds since the epoch; 0 while it is in progress.
        before: Number of instances before; 0 for a notice.
        after: Number of instances that it is to lead to; 0 for a notice.
    """

    activity_id: str
    description: str
    cause: str
    begun_ms: int
    status: str
    message: str = ""
    ended_ms: int = 0
    before: int = 0
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalableTarget(Document):
    """One property of a variant that policies may change.

    Attributes:
        endpoint: Name of the endpoint.
        endpoint_id: Its id: a later endpoint of the same name is not a target.
        variant: Name of the variant.
        dimension: `INSTANCES` or `CONCURRENCY`.
        least: MinCapacity.
        most: MaxCapacity.
        created_ms: Milliseconds since the epoch.
        suspended: SuspendedState, by botocore's member names.
        tags: Values by key.
        policies: The policies, in the order of their creation.
        activities: The latest activities, the newest last.
        added_ms: When instances were last added, in milliseconds since the epoch; 0 for never.
        removed_ms: When instances were last removed.
    """

    endpoint: str
    endpoint_id: str
    variant: str
    dimension: str
    least: int
    most: int
    created_ms: int
    suspended: Mapping[str, bool]
    tags: Mapping[str, str]
    policies: tuple[ScalingPolicy, ...] = ()
    activities: tuple[ScalingActivity, ...] = ()
    added_ms: int = 0
    removed_ms: int = 0

    @property
    def resource_id(self) -> str:
        """``endpoint/NAME/variant/NAME``."""
        return f"endpoint/{self.endpoint}/variant/{self.variant}"

    @property
    def name(self) -> str:
        """Name of its record."""
        return target_name(self.resource_id, self.dimension)

    @property
    def running(self) -> ScalingActivity | None:
        """The activity that is in progress, or None."""
        return next((each for each in self.activities if each.status == "InProgress"), None)

    def policy(self, name: str) -> ScalingPolicy | None:
        """Return the policy of that name, or None.

        Args:
            name: PolicyName.
        """
        return next((each for each in self.policies if each.name == name), None)

    def with_policy(self, policy: ScalingPolicy) -> "ScalableTarget":
        """Return the target with a policy added, or replaced in its place.

        Args:
            policy: The policy.
        """
        if self.policy(policy.name) is None:
            return replace(self, policies=(*self.policies, policy))
        return replace(self, policies=tuple(policy if each.name == policy.name else each for each in self.policies))

    def with_activity(self, activity: ScalingActivity) -> "ScalableTarget":
        """Return the target with an activity added, without the oldest one that has ended if there are too many.

        Args:
            activity: The activity.
        """
        activities = [*self.activities, activity]
        if len(activities) > ACTIVITIES_KEPT:
            activities.remove(next(each for each in activities if each.status != "InProgress"))
        return replace(self, activities=tuple(activities))

    def ended(self, status: str, message: str, *, at_ms: int) -> "ScalableTarget":
        """Return the target after its activity in progress has ended. Its cooldown begins, also after a failure.

        Args:
            status: How it ended.
            message: Details.
            at_ms: Milliseconds since the epoch.
        """
        running = self.running
        if running is None:
            return self
        done = replace(running, status=status, message=message, ended_ms=at_ms)
        activities = tuple(done if each == running else each for each in self.activities)
        if running.after > running.before:
            return replace(self, activities=activities, added_ms=at_ms)
        return replace(self, activities=activities, removed_ms=at_ms)


def target_name(resource_id: str, dimension: str) -> str:
    """Return the name of a target's record.

    Args:
        resource_id: ResourceId.
        dimension: ScalableDimension.
    """
    return f"{resource_id}|{dimension}"


def target_arn(resource_id: str, dimension: str, *, region: str) -> str:
    """Return the ARN of a scalable target, which depends only on what it scales.

    Args:
        resource_id: ResourceId.
        dimension: ScalableDimension.
    """
    digest = hashlib.sha256(target_name(resource_id, dimension).encode()).hexdigest()[:36]
    return f"arn:aws:application-autoscaling:{region}:{ACCOUNT_ID}:scalable-target/{digest}"


def policy_arn(resource_id: str, dimension: str, policy: str, *, region: str) -> str:
    """Return the ARN of a scaling policy.

    Args:
        resource_id: ResourceId of its target.
        dimension: ScalableDimension of its target.
        policy: PolicyName.
    """
    unique = uuid.uuid5(uuid.NAMESPACE_URL, f"{target_name(resource_id, dimension)}|{policy}")
    resource = f"resource/sagemaker/{resource_id}:policyName/{policy}"
    return f"arn:aws:autoscaling:{region}:{ACCOUNT_ID}:scalingPolicy:{unique}:{resource}"


def wanted_instances(policy: ScalingPolicy, minutes: Sequence[Minute], *, count: int) -> int:
    """Return the number of instances that brings the requests per instance to the policy's target value.

    As AWS's alarms do, it adds instances if each of the last 3 minutes was above the target value, and removes some if
    each of the last 15 minutes was below 90 % of it. Fewer minutes than that change nothing.

    Args:
        policy: A policy that has an effect here.
        minutes: The last complete minutes, the newest last.
        count: The present number of instances.

    Returns:
        At least 1; ``count`` to change nothing.
    """
    target = float(policy.config["TargetValue"])
    last, all_of = minutes[-_OUT_MINUTES:], minutes[-_IN_MINUTES:]
    if len(last) == _OUT_MINUTES and all(each.per_instance > target for each in last):
        return max(count, math.ceil(last[-1].calls / target))
    if (
        policy.scales_in
        and len(all_of) == _IN_MINUTES
        and all(each.per_instance < _IN_SHARE * target for each in all_of)
    ):
        return min(count, max(1, math.ceil(max(each.calls for each in all_of) / target)))
    return count
