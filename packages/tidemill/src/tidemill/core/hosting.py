"""Models, endpoint configurations and endpoints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Endpoint", "EndpointStatus", "Resource"]


class EndpointStatus(StrEnum):
    """The part of SageMaker's EndpointStatus values that tidemill uses."""

    CREATING = "Creating"
    IN_SERVICE = "InService"
    FAILED = "Failed"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A model or an endpoint configuration: a name and the request that made it."""

    name: str
    arn: str
    request: Mapping[str, Any]
    created_ms: int

    def to_document(self) -> dict[str, Any]:
        """JSON-able form for the store."""
        return asdict(self) | {"request": dict(self.request)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Resource":
        """The resource that `to_document` wrote."""
        return cls(**document)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A deployed endpoint configuration.

    The configuration and the model are copied in at creation: deleting them later changes nothing here, as on
    SageMaker.

    Attributes:
        instance_id: Hexadecimal name of the directory of its instances.
        variant: The ProductionVariant, by botocore's member names.
        model: The CreateModel request of the variant's model.
    """

    name: str
    arn: str
    config_name: str
    instance_id: str
    variant: Mapping[str, Any]
    model: Mapping[str, Any]
    log_streams: tuple[str, ...]
    created_ms: int
    status: EndpointStatus = EndpointStatus.CREATING
    failure_reason: str = ""

    def to_document(self) -> dict[str, Any]:
        """JSON-able form for the store."""
        return asdict(self) | {"variant": dict(self.variant), "model": dict(self.model)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Endpoint":
        """The endpoint that `to_document` wrote."""
        fields = dict(document)
        fields["status"] = EndpointStatus(fields["status"])
        fields["log_streams"] = tuple(fields["log_streams"])
        return cls(**fields)
