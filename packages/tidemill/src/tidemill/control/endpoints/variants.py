"""Create the deployment of an endpoint configuration: its production variants and their first instances."""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.core.hosting import Deployment, Instance, Resource, Variant
from tidemill.errors import ValidationException

MAX_INSTANCES = 8
"""Maximum instances per endpoint, since without a cluster all of them are processes of one machine."""


def check_variants(variants: list[Mapping[str, Any]]) -> None:
    """Check the ProductionVariants of a configuration.

    Raises:
        ValidationException: A name occurs twice, a variant has no model, or a count or weight is out of range.
    """
    names = [variant["VariantName"] for variant in variants]
    for index, variant in enumerate(variants, 1):
        at = f"productionVariants.{index}.member"
        if names.index(variant["VariantName"]) != index - 1:
            raise ValidationException(
                f"Value {variant['VariantName']!r} at '{at}.variantName' is not allowed: another variant has this name;"
                " give each variant its own"
            )
        if "ModelName" not in variant:
            raise ValidationException(
                f"Value None at '{at}.modelName' is not allowed: there are no inference components; give the name of a"
                " model"
            )
        check_count(variant.get("InitialInstanceCount", 1), at=f"{at}.initialInstanceCount")
        _check_serverless(variant, at=at)
    check_total(sum(variant.get("InitialInstanceCount", 1) for variant in variants), at="productionVariants")
    check_weights((variant.get("InitialVariantWeight", 1.0) for variant in variants), at="productionVariants")


def _check_serverless(variant: Mapping[str, Any], *, at: str) -> None:
    config = variant.get("ServerlessConfig")
    if config is None:
        return
    for member in ("InstanceType", "InitialInstanceCount"):
        if member in variant:
            raise ValidationException(
                f"Value {variant[member]!r} at '{at}.{member[0].lower()}{member[1:]}' is not allowed: a variant with a"
                " ServerlessConfig has no instances of its own; leave one of the two out"
            )
    if config.get("ProvisionedConcurrency", 0) > config["MaxConcurrency"]:
        raise ValidationException(
            f"Value {config['ProvisionedConcurrency']} at '{at}.serverlessConfig.provisionedConcurrency' is not"
            f" allowed: at most MaxConcurrency, which is {config['MaxConcurrency']}"
        )


def check_count(count: int, *, at: str) -> None:
    """Raise ValidationException unless a variant can have this number of instances.

    Args:
        at: Name of the request member.

    Raises:
        ValidationException: If it is out of range.
    """
    if not 1 <= count <= MAX_INSTANCES:
        raise ValidationException(f"Value {count} at '{at}' is not allowed: between 1 and {MAX_INSTANCES}")


def check_total(count: int, *, at: str) -> None:
    """Raise ValidationException unless an endpoint can have this number of instances in all.

    Args:
        at: Name of the request member.

    Raises:
        ValidationException: If it is too large.
    """
    if count > MAX_INSTANCES:
        raise ValidationException(
            f"Value {count} instances at '{at}' is not allowed: all variants of an endpoint together have at most"
            f" {MAX_INSTANCES}"
        )


def check_weights(weights: Any, *, at: str) -> None:
    """Raise ValidationException unless at least one variant has a weight above 0.

    Args:
        weights: Numbers from 0.
        at: Name of the request member.

    Raises:
        ValidationException: If all are 0.
    """
    if not sum(weights) > 0:
        raise ValidationException(
            f"Value 0 for the sum of all variant weights at '{at}' is not allowed: no variant would get a request; give"
            " one of them a weight above 0"
        )


def deployment_of(
    config: Resource, *, model_of: Callable[[str], Resource], at_ms: int, limit_s: int | None = None
) -> Deployment:
    """Create the deployment of a configuration, with new instances for all its variants.

    Args:
        config: The endpoint configuration.
        at_ms: The current time, in milliseconds since the epoch.
        limit_s: Time limit for starting its instances, in seconds; None for each variant's own limit.
    """
    return Deployment(
        config_name=config.name,
        variants=tuple(_variant(each, model_of, at_ms) for each in config.request["ProductionVariants"]),
        begun_ms=at_ms,
        capture=capture_of(config.request),
        limit_s=limit_s,
        asynchronous=config.request.get("AsyncInferenceConfig"),
    )


def capture_of(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the DataCaptureConfig of a CreateEndpointConfig request, or None if it captures nothing.

    Args:
        request: Members of CreateEndpointConfig.
    """
    config = request.get("DataCaptureConfig")
    # As on SageMaker, EnableCapture defaults to true.
    return config if config and config.get("EnableCapture", True) else None


def new_instance(variant_name: str, *, at_ms: int) -> Instance:
    """Return a new instance, not started yet, with its own log stream.

    Args:
        at_ms: Milliseconds since the epoch.
    """
    job_id = secrets.token_hex(16)
    return Instance(job_id=job_id, log_stream=f"{variant_name}/i-{job_id[:17]}", created_ms=at_ms)


def _variant(request: Mapping[str, Any], model_of: Callable[[str], Resource], at_ms: int) -> Variant:
    count = request.get("InitialInstanceCount", 1)
    return Variant(
        request=request,
        model=model_of(request["ModelName"]).served,
        weight=request.get("InitialVariantWeight", 1.0),
        count=count,
        instances=tuple(new_instance(request["VariantName"], at_ms=at_ms) for _ in range(count)),
    )
