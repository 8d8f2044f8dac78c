"""Create and update endpoints, and wait for them."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidemill.errors import EndpointFailed
from tidemill.sdk.console import Console
from tidemill.sdk.session import Session, warn_of_instance_types

_POLL_S = 0.25
_MOVING = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})


def put_endpoint(
    session: Session, name: str, config: Mapping[str, Any], *, tags: list[dict[str, str]] | None, update: bool
) -> None:
    """Create the endpoint configuration, and create the endpoint or update it to that configuration.

    Args:
        session: The session.
        name: Name of the endpoint.
        config: Members of CreateEndpointConfig, with one variant.
        tags: Tags of the configuration and of a new endpoint.
        update: Update the existing endpoint.
    """
    (variant,) = config["ProductionVariants"]
    if "InstanceType" in variant:
        warn_of_instance_types(session, variant["InstanceType"], stacklevel=4)
    tagged = {"Tags": tags} if tags else {}
    client = session.sagemaker_client
    client.create_endpoint_config(**config, **tagged)
    if update:
        client.update_endpoint(EndpointName=name, EndpointConfigName=config["EndpointConfigName"])
    else:
        client.create_endpoint(EndpointName=name, EndpointConfigName=config["EndpointConfigName"], **tagged)


def new_variants(
    present: Sequence[Mapping[str, Any]], *, count: int | None, instance_type: str | None, model: str | None
) -> list[dict[str, Any]]:
    """Return the production variants of an update.

    Args:
        present: The current variants.
        count: Number of instances. None keeps the variants, if no other argument is given.
        instance_type: Type of these instances.
        model: Name of the model; None means the model of ``present``.

    Raises:
        ValueError: A new variant is not described completely.
    """
    if count is None and instance_type is None and model is None:
        return [dict(each) for each in present]
    if count is None or instance_type is None:
        raise ValueError(
            f"initial_instance_count={count!r} and instance_type={instance_type!r} describe a new variant together;"
            " give both"
        )
    models = sorted({each["ModelName"] for each in present})
    if model is None and len(models) > 1:
        raise ValueError(f"the endpoint serves the models {', '.join(models)}; give model_name")
    return [
        {
            "VariantName": "AllTraffic",
            "ModelName": model or models[0],
            "InitialInstanceCount": count,
            "InstanceType": instance_type,
            "InitialVariantWeight": 1,
        }
    ]


def wait_in_service(
    session: Session,
    name: str,
    *,
    console: Console,
    config_name: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Wait until the endpoint is in service, print its states, and return its last description.

    Args:
        session: The SDK's session.
        name: Name of the endpoint.
        console: Prints the states.
        config_name: The configuration that the endpoint must serve; None accepts any.
        sleep: Waits between two requests; called with seconds.

    Raises:
        EndpointFailed: The endpoint ended in another state, or serves another configuration because an update was
            rolled back. The message contains the whole FailureReason.
    """
    shown = ""
    while True:
        description = session.sagemaker_client.describe_endpoint(EndpointName=name)
        status = description["EndpointStatus"]
        if status != shown:
            console.say(f"{time.strftime('%H:%M:%S')} Endpoint {name}: {status}")
            shown = status
        reason = description.get("FailureReason", "(no reason was given)")
        if status == "InService":
            if config_name in (None, description["EndpointConfigName"]):
                return description
            raise EndpointFailed(
                f"the update of endpoint {name} to {config_name} was rolled back, it serves"
                f" {description['EndpointConfigName']}:\n{reason}\nIts log: tidemill logs {name}"
            )
        if status not in _MOVING:
            raise EndpointFailed(f"endpoint {name} is {status}:\n{reason}\nIts log: tidemill logs {name}")
        sleep(_POLL_S)
