"""Compute the deployment that an update of an endpoint starts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.endpoints.variants import check_count, check_total, check_weights, new_instance
from tidemill.core.hosting import Deployment, Endpoint, EndpointStatus, Variant
from tidemill.errors import ValidationException

_COUNT = "DesiredInstanceCount"
_WEIGHT = "DesiredWeight"
_CAPTURE = "DataCaptureConfig"


def updated(endpoint: Endpoint, deployment: Deployment, *, config: Mapping[str, Any] | None) -> Endpoint:
    """Begin an update.

    Args:
        config: The DeploymentConfig of this update; None keeps that of the last one.

    Returns:
        The endpoint with status Updating.

    Raises:
        ValidationException: The endpoint is not in service.
    """
    if endpoint.status is EndpointStatus.FAILED:
        raise ValidationException(
            f'Cannot update failed endpoint "{endpoint.arn}": {endpoint.failure_reason}. Delete it and create it again'
        )
    if endpoint.status is not EndpointStatus.IN_SERVICE:
        raise ValidationException(f'Cannot update in-progress endpoint "{endpoint.arn}": it is {endpoint.status}')
    return replace(
        endpoint,
        starting=deployment,
        status=EndpointStatus.UPDATING,
        failure_reason="",
        deployment_config=endpoint.deployment_config if config is None else config,
    )


def retaining(deployment: Deployment, request: Mapping[str, Any], *, serving: Deployment | None) -> Deployment:
    """Copy the properties of the serving variants that an UpdateEndpoint request retains.

    Args:
        deployment: The deployment of the new configuration.
        request: The request; its members RetainAllVariantProperties and ExcludeRetainedVariantProperties are read.
        serving: The serving deployment, if any.

    Returns:
        ``deployment`` with the retained instance counts, weights and data capture.

    Raises:
        ValidationException: ExcludeRetainedVariantProperties is set without RetainAllVariantProperties.
    """
    excluded = {each["VariantPropertyType"] for each in request.get("ExcludeRetainedVariantProperties", ())}
    if not request.get("RetainAllVariantProperties", False):
        if excluded:
            raise ValidationException(
                f"Value {sorted(excluded)} at 'excludeRetainedVariantProperties' is not allowed: without"
                " RetainAllVariantProperties=true no property is retained; set it, or leave this member out"
            )
        return deployment
    if serving is None:
        return deployment
    kept = replace(deployment, variants=tuple(_kept(each, serving, excluded) for each in deployment.variants))
    check_total(sum(each.count for each in kept.variants), at="retainAllVariantProperties")
    check_weights((each.weight for each in kept.variants), at="retainAllVariantProperties")
    return kept if _CAPTURE in excluded else replace(kept, capture=serving.capture)


def resized(serving: Deployment, wanted: Iterable[Mapping[str, Any]], *, at_ms: int) -> Deployment:
    """Return the serving deployment with the weights and counts of an UpdateEndpointWeightsAndCapacities request.

    Existing instances are kept up to the new count.

    Args:
        wanted: The DesiredWeightsAndCapacities of the request.
        at_ms: The current time, in milliseconds since the epoch.

    Raises:
        ValidationException: A variant does not exist or is named twice, or a count or weight is out of range.
    """
    variants = {each.name: each for each in serving.variants}
    seen: set[str] = set()
    for index, change in enumerate(wanted, 1):
        at, name = f"desiredWeightsAndCapacities.{index}.member", change["VariantName"]
        if name not in variants or name in seen:
            why = "it is named twice" if name in seen else f"the endpoint has {', '.join(map(repr, variants))}"
            raise ValidationException(f"Value {name!r} at '{at}.variantName' is not allowed: {why}")
        seen.add(name)
        count = change.get(_COUNT, variants[name].count)
        check_count(count, at=f"{at}.desiredInstanceCount")
        variants[name] = _sized(variants[name], count, at_ms=at_ms, weight=change.get(_WEIGHT))
    check_total(sum(each.count for each in variants.values()), at="desiredWeightsAndCapacities")
    check_weights((each.weight for each in variants.values()), at="desiredWeightsAndCapacities")
    return replace(serving, variants=tuple(variants.values()), begun_ms=at_ms, limit_s=None)


def limit_of(config: Mapping[str, Any]) -> int | None:
    """Return the MaximumExecutionTimeoutInSeconds of a DeploymentConfig; None if it is missing.

    Args:
        config: The DeploymentConfig of a request.
    """
    return config.get("BlueGreenUpdatePolicy", {}).get("MaximumExecutionTimeoutInSeconds")


def _kept(variant: Variant, serving: Deployment, excluded: set[str]) -> Variant:
    before = serving.find(variant.name)
    if before is None:
        return variant
    count = variant.count if _COUNT in excluded else before.count
    at_ms = variant.instances[0].created_ms
    return _sized(variant, count, at_ms=at_ms, weight=None if _WEIGHT in excluded else before.weight)


def _sized(variant: Variant, count: int, *, at_ms: int, weight: float | None) -> Variant:
    """Add instances, or drop the newest ones."""
    more = (new_instance(variant.name, at_ms=at_ms) for _ in range(count - len(variant.instances)))
    return replace(
        variant,
        count=count,
        weight=variant.weight if weight is None else weight,
        instances=(*variant.instances[:count], *more),
    )
