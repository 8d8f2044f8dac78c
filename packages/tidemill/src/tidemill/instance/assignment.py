"""Input of the agent of an instance on another machine: a spec whose objects are fetched from the service's S3."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tidemill.core.instances import ObjectReference
from tidemill.core.remotes import RemoteS3
from tidemill.instance.records import (
    channel_from_json,
    channel_to_json,
    entry_from_json,
    entry_to_json,
    spec_from_json,
    spec_to_json,
)
from tidemill.instance.spec import SERVICE, Input, InstanceSpec, ObjectFile, RemoteObject


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAssignment:
    """A spec to be sent to another machine.

    Attributes:
        spec: The spec. The objects of its channels and of ``restored`` are remote; ``code`` and ``model`` are unset.
        code: The spec's code; None without code.
        model: The spec's model; None without one.
        lease_s: Seconds after the last answer of the service, by which the instance must have ended.
        isolation: The value of the setting of the same name.
    """

    spec: InstanceSpec
    code: ObjectReference | None
    model: ObjectReference | None
    lease_s: float
    isolation: str

    @classmethod
    def of(cls, spec: InstanceSpec, *, service_url: str, lease_s: float, isolation: str) -> "AgentAssignment":
        """Return the assignment of a spec.

        Args:
            spec: Spec of the instance.
            service_url: URL at which the instance's machine reaches the service.
            lease_s: See `AgentAssignment.lease_s`.
            isolation: See `AgentAssignment.isolation`.
        """
        service = RemoteS3(endpoint_url=service_url, region=spec.variables.get("AWS_REGION", "us-east-1"))
        channels = tuple(
            replace(each, objects=tuple(_remote(entry) for entry in each.objects)) for each in spec.channels
        )
        return cls(
            spec=replace(
                spec,
                code=None,
                model=None,
                channels=channels,
                restored=tuple(_remote(each) for each in spec.restored),
                remotes={**spec.remotes, SERVICE: service},
                variables=_at(spec.variables, service_url),
                agent_variables=_at(spec.agent_variables, service_url),
                warm=False,
            ),
            code=spec.code,
            model=spec.model,
            lease_s=lease_s,
            isolation=isolation,
        )

    def to_bytes(self) -> bytes:
        """Serialize as compressed JSON."""
        spec = self.spec
        value = {
            "version": 1,
            "spec": spec_to_json(spec),
            "channels": [
                {**channel_to_json(replace(each, objects=())), "objects": [_to_json(entry) for entry in each.objects]}
                for each in spec.channels
            ],
            "restored": [_to_json(each) for each in spec.restored],
            "code": asdict(self.code) if self.code else None,
            "model": asdict(self.model) if self.model else None,
            "lease_s": self.lease_s,
            "isolation": self.isolation,
        }
        return gzip.compress(json.dumps(value).encode("utf-8", "surrogatepass"), compresslevel=1)

    @classmethod
    def from_bytes(cls, data: bytes) -> "AgentAssignment":
        """Parse the output of `to_bytes`.

        Raises:
            ValueError: The bytes are not an assignment.
            KeyError: A required member is missing.
        """
        value = json.loads(gzip.decompress(data).decode("utf-8", "surrogatepass"))
        channels = tuple(
            replace(channel_from_json(each), objects=tuple(_from_json(entry) for entry in each["objects"]))
            for each in value["channels"]
        )
        code, model = value["code"], value.get("model")
        return cls(
            spec=replace(
                spec_from_json(value["spec"]),
                channels=channels,
                restored=tuple(_from_json(each) for each in value["restored"]),
            ),
            code=ObjectReference(**code) if code else None,
            model=ObjectReference(**model) if model else None,
            lease_s=value["lease_s"],
            isolation=value["isolation"],
        )


def _at(variables: Mapping[str, str], service_url: str) -> dict[str, str]:
    """Return variables whose address of the service, if they have one, is that for other machines."""
    return {**variables, **({"AWS_ENDPOINT_URL": service_url} if "AWS_ENDPOINT_URL" in variables else {})}


def _remote(entry: Input) -> Input:
    """Return an object of the service's store as a remote object for another machine."""
    if not isinstance(entry, ObjectReference):
        return entry
    return RemoteObject(
        uri=entry.uri, name=entry.name, size_bytes=entry.size_bytes, etag=f'"{entry.etag}"', remote=SERVICE
    )


def _to_json(entry: Input) -> dict[str, Any]:
    assert not isinstance(entry, ObjectReference), "made remote in `AgentAssignment.of`"
    return entry_to_json(entry)


def _from_json(value: Any) -> Input:
    entry = entry_from_json(value)
    assert not isinstance(entry, ObjectFile), "a file of one machine is of no use on another"
    return entry
