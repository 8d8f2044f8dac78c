"""Follow the scaling policies: add and remove instances of variants between the limits of their scalable targets.

A change of the instance count and the activity that shows it are one commit, and the driver of endpoints does the rest,
as after UpdateEndpointWeightsAndCapacities: the endpoint is Updating, new instances get requests once they answer, and
removed ones end after their last answer. So a kill at any time leaves a change that was made and is shown, or none.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tidemill.control.endpoints.invocations import Invocations
from tidemill.control.endpoints.variants import MAX_INSTANCES
from tidemill.control.hosting import Hosting
from tidemill.control.scaling.targets import SCALABLE_TARGET, ScalableTargets, target_record
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Variant
from tidemill.core.scaling import INSTANCES, Minute, ScalableTarget, ScalingActivity, wanted_instances
from tidemill.errors import AwsError, ServiceUnavailable, ValidationException
from tidemill.store.records.base import Transaction

_log = structlog.get_logger("tidemill.autoscaler")
_LOOK_S = 10.0
_RETRY_MS = 300_000
"""Pause after a change that failed, before a limit is enforced again; policies have their cooldowns."""


@dataclass(frozen=True, slots=True)
class _Decision:
    count: int
    cause: str


class _Outdated(Exception):
    """The endpoint or the target changed between the decision and its commit."""


class Autoscaler:
    """Decides about all targets.

    Args:
        targets: The targets and their policies.
        hosting: Changes the endpoints.
        invocations: Counts the requests of variants.
        clock: Provides the time of cooldowns.
        capacity: Returns the number of instances for which the machines have room. Policies add none beyond it; limits
            may ask for more. Default: as many as an endpoint may have.
    """

    def __init__(
        self,
        targets: ScalableTargets,
        hosting: Hosting,
        *,
        invocations: Invocations,
        clock: Clock,
        capacity: Callable[[], int] = lambda: MAX_INSTANCES,
    ) -> None:
        self._targets = targets
        self._hosting = hosting
        self._invocations = invocations
        self._clock = clock
        self._capacity = capacity

    async def run(self) -> None:
        """Look at all targets now, when one was registered, and every 10 s, until cancelled."""
        while True:
            self._targets.registered.clear()
            try:
                await self.look()
            except ServiceUnavailable as error:
                _log.warning("scaling.delayed", reason=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._targets.registered.wait()

    async def look(self) -> None:
        """Finish the activities that have ended, and scale where a policy or a limit asks for it."""
        targets = await self._targets.all()
        self._invocations.keep({(each.endpoint_id, each.variant) for each in targets})
        for target in targets:
            try:
                await self._follow(target)
            except ServiceUnavailable:
                raise
            except Exception:  # noqa: BLE001 - a defect at one target must not stop the others
                _log.exception("scaling.failed", target=target.resource_id)

    async def _follow(self, target: ScalableTarget) -> None:
        endpoint = self._endpoint(target)
        variant = _variant_of(target, endpoint)
        if endpoint is None or (variant is None and endpoint.starting is None):
            await self._targets.remove(target)
            return
        if endpoint.serving is None or variant is None or variant.serverless or target.dimension != INSTANCES:
            return
        minutes = self._invocations.minutes(endpoint.endpoint_id, variant)
        if target.running is not None:
            await self._finish(target, target.running, endpoint, variant)
        elif endpoint.status is EndpointStatus.IN_SERVICE:
            await self._scale(target, endpoint.serving, variant, minutes)

    def _endpoint(self, target: ScalableTarget) -> Endpoint | None:
        """Return the endpoint of a target; None if it is being deleted, does not exist, or is another one."""
        try:
            endpoint = self._hosting.endpoint(target.endpoint)
        except ValidationException:
            return None
        gone = endpoint.endpoint_id != target.endpoint_id or endpoint.status is EndpointStatus.DELETING
        return None if gone else endpoint

    async def _finish(
        self, target: ScalableTarget, running: ScalingActivity, endpoint: Endpoint, variant: Variant
    ) -> None:
        """Store how an activity ended, once the endpoint is not updating any more."""
        if endpoint.status is EndpointStatus.UPDATING:
            return
        now_ms = self._clock.now_ms()
        if endpoint.status is EndpointStatus.IN_SERVICE and variant.count == running.after:
            status, message = "Successful", f"Successfully set desired instance count to {running.after}."
        elif endpoint.failure_reason:
            status, message = "Failed", f"Failed to set desired instance count: {endpoint.failure_reason}"
        else:
            status, message = "Overridden", f"Another update set the desired instance count to {variant.count}."
        await self._targets.amend(
            target.name, lambda now: now.ended(status, message, at_ms=now_ms) if now.running == running else now
        )
        _log.info("scaling.ended", endpoint=endpoint.name, variant=variant.name, status=status)

    async def _scale(
        self, target: ScalableTarget, serving: Deployment, variant: Variant, minutes: tuple[Minute, ...]
    ) -> None:
        room = self._capacity() - sum(each.count for each in serving.variants if each.name != variant.name)
        decision = _decided(target, serving, variant, minutes, room=room, now_ms=self._clock.now_ms())
        if decision is None:
            return
        activity = ScalingActivity(
            activity_id=secrets.token_hex(16),
            description=f"Setting desired instance count to {decision.count}.",
            cause=decision.cause,
            begun_ms=self._clock.now_ms(),
            status="InProgress",
            before=variant.count,
            after=decision.count,
        )

        def along(transaction: Transaction, now: Endpoint) -> None:
            record = transaction.get(SCALABLE_TARGET, target.name)
            current = _variant_of(target, now)
            if record is None or ScalableTarget.from_document(record.document) != target or current != variant:
                raise _Outdated
            transaction.update(SCALABLE_TARGET, target.name, lambda _: target_record(target.with_activity(activity)))

        wanted = [{"VariantName": variant.name, "DesiredInstanceCount": decision.count}]
        faults.point("control.scaling.decided")
        try:
            await self._hosting.resize_endpoint(
                {"EndpointName": target.endpoint, "DesiredWeightsAndCapacities": wanted}, along=along
            )
        except ServiceUnavailable:
            raise
        except (_Outdated, AwsError) as error:
            _log.info("scaling.dropped", endpoint=target.endpoint, variant=variant.name, reason=str(error))
            return
        faults.point("control.scaling.begun")
        _log.info("scaling.began", endpoint=target.endpoint, variant=variant.name, cause=decision.cause)


def _variant_of(target: ScalableTarget, endpoint: Endpoint | None) -> Variant | None:
    return endpoint.serving.find(target.variant) if endpoint is not None and endpoint.serving is not None else None


def _decided(
    target: ScalableTarget,
    serving: Deployment,
    variant: Variant,
    minutes: tuple[Minute, ...],
    *,
    room: int,
    now_ms: int,
) -> _Decision | None:
    """Return the next instance count of a variant and its cause; None to change nothing."""
    others = sum(each.count for each in serving.variants) - variant.count
    most = min(target.most, MAX_INSTANCES - others)
    least = max(1, min(target.least, most))
    last = next((each for each in reversed(target.activities) if each.after), None)  # no notice about a policy
    if not least <= variant.count <= max(most, least):
        if last is not None and last.status == "Failed" and 0 <= now_ms - last.ended_ms < _RETRY_MS:
            return None
        which = "minimum" if variant.count < least else "maximum"
        count = least if variant.count < least else max(most, least)
        return _Decision(count, f"{which} capacity was set to {count}")
    wishes = [
        (wanted_instances(policy, minutes, count=variant.count), policy)
        for policy in target.policies
        if policy.has_effect
    ]
    # As on AWS, the policy that wants the most instances decides.
    wished, policy = max(wishes, key=lambda wish: wish[0], default=(variant.count, None))
    count = min(max(wished, least), max(most, least), max(variant.count, room))
    if policy is None or count == variant.count:
        return None
    out = count > variant.count
    suspended = target.suspended.get(f"DynamicScaling{'Out' if out else 'In'}Suspended", False)
    since_ms = target.added_ms if out else target.removed_ms
    if suspended or 0 <= now_ms - since_ms < policy.cooldown_ms(out=out):
        return None
    side = "above" if out else "below"
    cause = (
        f"policy {policy.name}: the requests per minute and instance were {side} the target value"
        f" {policy.config['TargetValue']:g} ({minutes[-1].per_instance:g} in the last minute)"
    )
    return _Decision(count, cause)
