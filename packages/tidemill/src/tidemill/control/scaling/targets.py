"""Scalable targets and their policies: register, change, look up, remove."""

import asyncio
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

from tidemill.control.endpoints.variants import MAX_INSTANCES
from tidemill.control.resources import ENDPOINT
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint, EndpointStatus, Variant
from tidemill.core.scaling import CONCURRENCY, INSTANCES, ScalableTarget, ScalingActivity, ScalingPolicy, target_name
from tidemill.errors import AwsError, ValidationException
from tidemill.store.records.base import Query, Record, RecordStore, Transaction

SCALABLE_TARGET = "scalable-target"
"""Kind of the records; each is named by `tidemill.core.scaling.target_name`."""
_RESOURCE = re.compile(r"endpoint/([A-Za-z0-9-]+)/variant/([A-Za-z0-9-]+)")
_POLICIES_MAX = 50
_METRICS = {
    INSTANCES: ("SageMakerVariantInvocationsPerInstance", "SageMakerVariantConcurrentRequestsPerModelHighResolution"),
    CONCURRENCY: ("SageMakerVariantProvisionedConcurrencyUtilization",),
}
_CONFIGS = {
    "StepScaling": "StepScalingPolicyConfiguration",
    "TargetTrackingScaling": "TargetTrackingScalingPolicyConfiguration",
}
_TAGS_MAX = 50


class ScalableTargets:
    """The scalable targets of the account.

    Args:
        records: Stores targets, and has the endpoints.

    Attributes:
        registered: Set when a target was registered or changed, until the autoscaler looks at it.
    """

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self.registered = asyncio.Event()

    async def register(self, request: Mapping[str, Any]) -> ScalableTarget:
        """Register a target, or change one.

        Args:
            request: The members of RegisterScalableTarget.

        Raises:
            ValidationException: The variant does not exist or cannot scale so, or a capacity is out of range.
        """
        endpoint_name, variant_name = _parsed(request["ResourceId"])
        name, now_ms = _name(request), self._clock.now_ms()

        def work(transaction: Transaction) -> ScalableTarget:
            endpoint, variant = _scaled(transaction, endpoint_name, variant_name)
            record = transaction.get(SCALABLE_TARGET, name)
            present = ScalableTarget.from_document(record.document) if record else None
            if present is not None and present.endpoint_id != endpoint.endpoint_id:
                present = None
            if present is None and not {"MinCapacity", "MaxCapacity"} <= request.keys():
                raise ValidationException(
                    "Both minimum and maximum capacity are required for a new scalable target; give MinCapacity and"
                    " MaxCapacity"
                )
            target = _changed(
                present
                or ScalableTarget(
                    endpoint=endpoint_name,
                    endpoint_id=endpoint.endpoint_id,
                    variant=variant_name,
                    dimension=request["ScalableDimension"],
                    least=request["MinCapacity"],
                    most=request["MaxCapacity"],
                    created_ms=now_ms,
                    suspended={},
                    tags={},
                ),
                request,
            )
            _check_limits(target, endpoint, variant)
            transaction.delete(SCALABLE_TARGET, name)
            transaction.insert(target_record(target))
            return target

        target = await self._records.change(work, grows=True)
        self.registered.set()
        return target

    async def deregister(self, request: Mapping[str, Any]) -> None:
        """Remove a target with its policies and activities.

        Raises:
            AwsError: ObjectNotFoundException.
        """
        if await self._records.delete(SCALABLE_TARGET, _name(request)) is None:
            _no_target(request)

    async def put_policy(self, request: Mapping[str, Any]) -> ScalingPolicy:
        """Add or replace a policy of a target.

        Args:
            request: The members of PutScalingPolicy.

        Raises:
            ValidationException: Type and configuration do not fit each other, or the metric is none of the target's.
            AwsError: ObjectNotFoundException; LimitExceededException.
        """
        now_ms = self._clock.now_ms()

        def change(target: ScalableTarget) -> ScalableTarget:
            present = target.policy(request["PolicyName"])
            policy = _policy(request, target, present, now_ms=now_ms)
            if present is None and len(target.policies) >= _POLICIES_MAX:
                raise AwsError(
                    f"{target.resource_id} has {_POLICIES_MAX} scaling policies, which is the limit; delete one first",
                    code="LimitExceededException",
                )
            changed = target.with_policy(policy)
            return changed if policy.has_effect else changed.with_activity(_notice(policy, target, now_ms=now_ms))

        target = await self.change(request, change)
        policy = target.policy(request["PolicyName"])
        assert policy is not None, "the change has put it there"
        return policy

    async def delete_policy(self, request: Mapping[str, Any]) -> None:
        """Remove a policy.

        Raises:
            AwsError: ObjectNotFoundException.
        """
        name = request["PolicyName"]

        def without(target: ScalableTarget) -> ScalableTarget:
            if target.policy(name) is None:
                raise AwsError(
                    f"No scaling policy found for service namespace: sagemaker, resource ID: {target.resource_id},"
                    f" scalable dimension: {target.dimension}, policy name: {name}",
                    code="ObjectNotFoundException",
                )
            return replace(target, policies=tuple(each for each in target.policies if each.name != name))

        await self.change(request, without)

    async def change(
        self, request: Mapping[str, Any], change: Callable[[ScalableTarget], ScalableTarget]
    ) -> ScalableTarget:
        """Change a target.

        Args:
            request: Its ResourceId and ScalableDimension.
            change: Converts the target.

        Raises:
            AwsError: ObjectNotFoundException, or raised by ``change``.
        """
        changed = await self.amend(_name(request), change)
        if changed is None:
            _no_target(request)
        return changed

    async def amend(self, name: str, change: Callable[[ScalableTarget], ScalableTarget]) -> ScalableTarget | None:
        """Change a target by the name of its record. Return it as stored, or None if it does not exist.

        Args:
            name: `ScalableTarget.name`.
            change: Converts the target.
        """
        record = await self._records.update(
            SCALABLE_TARGET, name, lambda record: target_record(change(ScalableTarget.from_document(record.document)))
        )
        return ScalableTarget.from_document(record.document) if record else None

    async def remove(self, target: ScalableTarget) -> None:
        """Remove a target whose endpoint or variant does not exist any more, unless it was registered again."""

        def work(transaction: Transaction) -> None:
            record = transaction.get(SCALABLE_TARGET, target.name)
            if record and ScalableTarget.from_document(record.document).endpoint_id == target.endpoint_id:
                transaction.delete(SCALABLE_TARGET, target.name)

        await self._records.change(work)

    async def page(self, *, after: str | None, limit: int) -> tuple[list[ScalableTarget], str | None]:
        """Return a page of targets, sorted by name, and the token of the next page.

        Args:
            after: Token of an earlier page.
            limit: Most targets.

        Raises:
            AwsError: InvalidNextTokenException.
        """
        query = Query(sort_by="name", descending=False, limit=limit, after=after)
        try:
            page = await self._records.list(SCALABLE_TARGET, query)
        except ValueError as error:
            raise AwsError(f"NextToken is not valid: {error}", code="InvalidNextTokenException") from error
        return [ScalableTarget.from_document(record.document) for record in page.records], page.next_token

    async def all(self) -> list[ScalableTarget]:
        """Return all targets, sorted by name."""
        found: list[ScalableTarget] = []
        token: str | None = None
        while True:
            page, token = await self.page(after=token, limit=100)
            found += page
            if token is None:
                return found


def target_record(target: ScalableTarget) -> Record:
    """Return a target as a record.

    Args:
        target: The target.
    """
    return Record(
        kind=SCALABLE_TARGET,
        name=target.name,
        created_ms=target.created_ms,
        modified_ms=target.created_ms,
        document=target.to_document(),
    )


def _name(request: Mapping[str, Any]) -> str:
    return target_name(request["ResourceId"], request["ScalableDimension"])


def _parsed(resource_id: str) -> tuple[str, str]:
    found = _RESOURCE.fullmatch(resource_id)
    if found is None:
        raise ValidationException(
            f"Value {resource_id!r} at 'resourceId' is not allowed: expected endpoint/NAME/variant/VARIANT, e.g."
            " 'endpoint/digits/variant/AllTraffic'"
        )
    return found[1], found[2]


def _scaled(transaction: Transaction, endpoint_name: str, variant_name: str) -> tuple[Endpoint, Variant]:
    record = transaction.get(ENDPOINT, endpoint_name)
    endpoint = Endpoint.from_document(record.document) if record else None
    if endpoint is None or endpoint.status is EndpointStatus.DELETING:
        raise ValidationException(f"SageMaker endpoint {endpoint_name!r} does not exist; create it first")
    for deployment in endpoint.deployments:
        variant = deployment.find(variant_name)
        if variant is not None:
            return endpoint, variant
    names = ", ".join(repr(each.name) for deployment in endpoint.deployments for each in deployment.variants)
    raise ValidationException(f"SageMaker endpoint {endpoint_name!r} has no variant {variant_name!r}; it has {names}")


def _changed(target: ScalableTarget, request: Mapping[str, Any]) -> ScalableTarget:
    tags = {**target.tags, **request.get("Tags", {})}
    if len(tags) > _TAGS_MAX:
        raise ValidationException(f"Value {len(tags)} at 'tags' is not allowed: a target has at most {_TAGS_MAX} tags")
    return replace(
        target,
        least=request.get("MinCapacity", target.least),
        most=request.get("MaxCapacity", target.most),
        suspended={**target.suspended, **request.get("SuspendedState", {})},
        tags=tags,
    )


def _check_limits(target: ScalableTarget, endpoint: Endpoint, variant: Variant) -> None:
    if target.most < target.least:
        raise ValidationException(
            f"Maximum capacity cannot be less than minimum capacity: MinCapacity is {target.least}, MaxCapacity"
            f" {target.most}"
        )
    if target.dimension == CONCURRENCY:
        _check_concurrency(target, variant)
        return
    if variant.serverless is not None:
        raise ValidationException(
            f"The variant {variant.name!r} is serverless and has no instances to scale; its dimension is {CONCURRENCY}"
        )
    asynchronous = any(each.asynchronous is not None for each in endpoint.deployments)
    if target.least < 1 and not asynchronous:
        raise ValidationException(
            f"Value {target.least} at 'minCapacity' is not allowed: at least 1, except for an asynchronous endpoint"
        )
    if target.least > MAX_INSTANCES:
        raise ValidationException(
            f"Value {target.least} at 'minCapacity' is not allowed: an endpoint has at most {MAX_INSTANCES} instances"
            " on one machine"
        )


def _check_concurrency(target: ScalableTarget, variant: Variant) -> None:
    config = variant.serverless or {}
    if not config.get("ProvisionedConcurrency"):
        raise ValidationException(
            f"The variant {variant.name!r} has no ProvisionedConcurrency to scale; give its ServerlessConfig one, or"
            f" register the dimension {INSTANCES} of a variant with instances"
        )
    if not 1 <= target.least <= target.most <= config["MaxConcurrency"]:
        raise ValidationException(
            f"MinCapacity is {target.least} and MaxCapacity {target.most}; allowed are 1 to the variant's"
            f" MaxConcurrency, which is {config['MaxConcurrency']}"
        )


def _policy(
    request: Mapping[str, Any], target: ScalableTarget, present: ScalingPolicy | None, *, now_ms: int
) -> ScalingPolicy:
    kind = request.get("PolicyType") or (present.kind if present else "StepScaling")
    if kind not in _CONFIGS:
        raise ValidationException(
            f"Value {kind!r} at 'policyType' is not allowed: nothing is forecast here; allowed are"
            f" {', '.join(_CONFIGS)}"
        )
    other = next((member for each, member in _CONFIGS.items() if each != kind and member in request), None)
    config = request.get(_CONFIGS[kind])
    if config is None or other is not None:
        raise ValidationException(
            f"A policy of PolicyType {kind} has {_CONFIGS[kind]}, and no other configuration"
            + (f"; the request has {other}" if other else "")
        )
    policy = ScalingPolicy(
        name=request["PolicyName"], kind=kind, config=config, created_ms=present.created_ms if present else now_ms
    )
    if kind == "TargetTrackingScaling":
        _check_tracking(policy, target)
    return policy


def _check_tracking(policy: ScalingPolicy, target: ScalableTarget) -> None:
    predefined, custom = (policy.config.get(f"{each}MetricSpecification") for each in ("Predefined", "Customized"))
    if (predefined is None) is (custom is None):
        raise ValidationException(
            "TargetTrackingScalingPolicyConfiguration has PredefinedMetricSpecification or"
            " CustomizedMetricSpecification: give one of the two"
        )
    if not policy.config["TargetValue"] > 0:
        raise ValidationException(
            f"Value {policy.config['TargetValue']} at 'targetValue' is not allowed: a number above 0"
        )
    allowed = _METRICS[target.dimension]
    if predefined is not None and predefined["PredefinedMetricType"] not in allowed:
        raise ValidationException(
            f"Value {predefined['PredefinedMetricType']!r} at 'predefinedMetricType' is not a metric of"
            f" {target.dimension}; there are {', '.join(allowed)}"
        )
    for each in target.policies:
        if each.name != policy.name and each.metric == policy.metric and each.kind == policy.kind:
            raise ValidationException(
                "Only one TargetTrackingScaling policy for a given metric specification is allowed: the policy"
                f" {each.name!r} follows the metric already; change it, or delete it first"
            )


def _notice(policy: ScalingPolicy, target: ScalableTarget, *, now_ms: int) -> ScalingActivity:
    """Return the activity that tells that a policy is kept without effect."""
    if target.dimension == CONCURRENCY:
        why = "the one server of a serverless variant answers all requests, whatever its ProvisionedConcurrency is"
    elif policy.kind == "StepScaling":
        why = "it is started by an alarm, and alarms are kept here without being evaluated"
    else:
        why = "its metric is not measured here; the metric to follow is SageMakerVariantInvocationsPerInstance"
    return ScalingActivity(
        activity_id=secrets.token_hex(16),
        description=f"Kept scaling policy {policy.name}.",
        cause=f"PutScalingPolicy of policy {policy.name}",
        begun_ms=now_ms,
        ended_ms=now_ms,
        status="Unfulfilled",
        message=f"The policy {policy.name} is kept and shown, but has no effect: {why}.",
    )


def _no_target(request: Mapping[str, Any]) -> NoReturn:
    raise AwsError(
        "No scalable target registered for service namespace: sagemaker, resource ID:"
        f" {request['ResourceId']}, scalable dimension: {request['ScalableDimension']}",
        code="ObjectNotFoundException",
    )
