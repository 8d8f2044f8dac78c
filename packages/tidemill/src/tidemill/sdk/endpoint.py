"""Making endpoints and waiting for them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.errors import EndpointFailed
from tidemill.sdk.console import Console
from tidemill.sdk.session import Session

__all__ = ["EndpointPlan", "put_endpoint", "wait_in_service"]

_POLL_S = 0.25
_MOVING = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPlan:
    """What an endpoint is to be.

    Attributes:
        name: Of the endpoint and of its configuration.
        model_name: The model it serves.
        instance_count: How many instances serve it.
        instance_type: Of these instances.
        variant: Further members of the production variant.
        config: Further members of the endpoint configuration.
        tags: In the wire's form.
    """

    name: str
    model_name: str
    instance_count: int
    instance_type: str
    variant: Mapping[str, Any]
    config: Mapping[str, Any]
    tags: list[dict[str, str]] | None = None


def put_endpoint(session: Session, plan: EndpointPlan, *, config_name: str, update: bool = False) -> None:
    """Create the configuration, and the endpoint or its update."""
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": plan.model_name,
        "InitialInstanceCount": plan.instance_count,
        "InstanceType": plan.instance_type,
        "InitialVariantWeight": 1,
        **plan.variant,
    }
    tags = {"Tags": plan.tags} if plan.tags else {}
    client = session.sagemaker_client
    client.create_endpoint_config(EndpointConfigName=config_name, ProductionVariants=[variant], **plan.config, **tags)
    if update:
        client.update_endpoint(EndpointName=plan.name, EndpointConfigName=config_name)
    else:
        client.create_endpoint(EndpointName=plan.name, EndpointConfigName=config_name, **tags)


def wait_in_service(
    session: Session, name: str, *, console: Console, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Wait until the endpoint serves, showing its states; the last description.

    Raises:
        EndpointFailed: It ended in another state; the message has the whole FailureReason.
    """
    shown = ""
    while True:
        description = session.sagemaker_client.describe_endpoint(EndpointName=name)
        status = description["EndpointStatus"]
        if status != shown:
            console.say(f"{time.strftime('%H:%M:%S')} Endpoint {name}: {status}")
            shown = status
        if status == "InService":
            return description
        if status not in _MOVING:
            reason = description.get("FailureReason", "(no reason was given)")
            raise EndpointFailed(f"endpoint {name} is {status}:\n{reason}\nIts log: tidemill logs {name}")
        sleep(_POLL_S)
