"""Specs, objects and exits as JSON: the content of the files between server and shim.

Every record is read leniently: unknown members are ignored, and missing members get their default. So a newer server
can read the files of an older shim, and an older shim can run the spec of a newer server.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.limits import InstanceLimits
from tidemill.core.remotes import RemoteS3
from tidemill.instance.spec import (
    ChannelSpec,
    Entry,
    InlineText,
    InstanceSpec,
    ObjectFile,
    RemoteObject,
    SyncedDirectory,
)
from tidemill.instance.status import Artifact, InstanceExit, Outcome

__all__ = [
    "FAST_FILE_CACHE_MAX_BYTES",
    "RESTORED",
    "Site",
    "SpecRecord",
    "channel_from_json",
    "channel_to_json",
    "entry_from_json",
    "entry_to_json",
    "exit_from_json",
    "exit_to_json",
    "object_from_json",
    "object_to_json",
    "spec_from_json",
    "spec_to_json",
]


FAST_FILE_CACHE_MAX_BYTES = 64 << 30
RESTORED = "@restored"
"""Name of the listing of checkpoints to restore, next to those of the channels. No channel can have this name."""
_PLAIN_FILE = ("uri", "name", "file", "size_bytes", "sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Facts about the machine that the shim needs; the shim never reads settings.

    Attributes:
        state_dir: The service's state directory, hidden from jobs; contains ``notify.sock``.
        environments_dir: Directory of the environments.
        backend: Name of the sandbox, e.g. ``bubblewrap``.
        warm_socket: Socket of a process that forks scripts with TensorFlow imported; None starts them cold.
        network: File that describes the job's network; None uses the machine's network.
        hidden: Directory around ``state_dir`` that jobs do not see; None hides only ``state_dir``.
        private: Further files and directories that jobs do not see, such as credentials.
        readable: Paths that jobs may read although they would be hidden.
        agent: File with the process id of the agent without which the instance must end; None without an agent.
        fast_file_cache_max_bytes: Maximum size of the cache of a channel in FastFile mode.
    """

    state_dir: Path
    environments_dir: Path
    backend: str
    warm_socket: Path | None = None
    network: Path | None = None
    hidden: Path | None = None
    private: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    agent: Path | None = None
    fast_file_cache_max_bytes: int = FAST_FILE_CACHE_MAX_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRecord:
    """``spec.json``: the spec resolved for one machine. Its listings are in separate files.

    Attributes:
        spec: The spec; its ``channels`` are empty here, ``code`` and ``model`` are unset.
        channels: Names of the channels in File mode.
        log_directory: Directory of the segment files of the spec's log stream.
        site: What the executor adds.
        code: The spec's code.
        model: The spec's model.
        pipes: The channels in Pipe mode; their ``objects`` are empty here.
        fast_files: Names of the channels in FastFile mode with objects of a remote S3, which are read on demand.
        shared: By name of a channel in File mode: the directory of links that it shares with other instances, if any
            (`tidemill.shim.shared_links`).
        devices: What CUDA_VISIBLE_DEVICES names the GPUs of the instance by; None on a machine without GPUs.
    """

    spec: InstanceSpec
    channels: tuple[str, ...]
    log_directory: Path
    site: Site
    code: ObjectFile | None = None
    model: ObjectFile | None = None
    pipes: tuple[ChannelSpec, ...] = ()
    fast_files: tuple[str, ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "version": 1,
            **spec_to_json(self.spec),
            "log_directory": str(self.log_directory),
            "code": self.code and object_to_json(self.code),
            "model": self.model and object_to_json(self.model),
            "channels": list(self.channels),
            "pipes": [channel_to_json(pipe) for pipe in self.pipes],
            "fast_files": list(self.fast_files),
            "shared": dict(self.shared),
            "devices": self.devices,
            "site": {
                name: [*map(str, value)] if isinstance(value, tuple) else str(value)
                for name, value in asdict(self.site).items()
                if value is not None
            },
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SpecRecord":
        """Parse a record.

        Raises:
            KeyError: A required member is missing.
        """
        code, model, site = value.get("code"), value.get("model"), value["site"]
        return cls(
            spec=spec_from_json(value),
            channels=tuple(value.get("channels", ())),
            log_directory=Path(value["log_directory"]),
            code=object_from_json(code) if code else None,
            model=object_from_json(model) if model else None,
            pipes=tuple(channel_from_json(pipe) for pipe in value.get("pipes", ())),
            fast_files=tuple(value.get("fast_files", ())),
            shared=value.get("shared", {}),
            devices=None if value.get("devices") is None else tuple(value["devices"]),
            site=Site(
                state_dir=Path(site["state_dir"]),
                environments_dir=Path(site["environments_dir"]),
                backend=site["backend"],
                warm_socket=Path(site["warm_socket"]) if "warm_socket" in site else None,
                network=Path(site["network"]) if "network" in site else None,
                hidden=Path(site["hidden"]) if "hidden" in site else None,
                private=tuple(map(Path, site.get("private", ()))),
                readable=tuple(map(Path, site.get("readable", ()))),
                agent=Path(site["agent"]) if "agent" in site else None,
                # Missing in specs of earlier versions.
                fast_file_cache_max_bytes=int(site.get("fast_file_cache_max_bytes", FAST_FILE_CACHE_MAX_BYTES)),
            ),
        )


def spec_to_json(spec: InstanceSpec) -> dict[str, Any]:
    """Return a spec without its inputs: ``channels``, ``restored``, ``code`` and ``model`` are in other files."""
    return {
        "job_id": spec.ref.job_id,
        "instance_index": spec.ref.instance_index,
        "attempt": spec.ref.attempt,
        "kind": spec.kind,
        "job_name": spec.job_name,
        "hosts": list(spec.hosts),
        "addresses": list(spec.addresses),
        "peer_secret": spec.peer_secret,
        "framework_version": spec.framework_version,
        "python": spec.python,
        "serves": spec.serves,
        "log": asdict(spec.log),
        "notices": list(spec.notices),
        "variables": dict(spec.variables),
        "config": dict(spec.config),
        "remotes": {pattern: asdict(remote) for pattern, remote in spec.remotes.items()},
        "synced": [asdict(each) for each in spec.synced],
        "entrypoint": list(spec.entrypoint),
        "max_runtime_s": spec.max_runtime_s,
        "grace_s": spec.grace_s,
        "warm": spec.warm,
        "closed": spec.closed,
        "encrypted": spec.encrypted,
        "serves_network": spec.serves_network,
        "compiler_cache": spec.compiler_cache,
        "artifacts_uri": spec.artifacts_uri,
        "gpus": spec.gpus,
        "limits": asdict(spec.limits),
    }


def spec_from_json(value: Mapping[str, Any]) -> InstanceSpec:
    """Parse the output of `spec_to_json`.

    Raises:
        KeyError: A required member is missing.
    """
    return InstanceSpec(
        ref=InstanceRef(value["job_id"], value["instance_index"], value.get("attempt", 1)),
        kind=value["kind"],
        job_name=value["job_name"],
        hosts=tuple(value["hosts"]),
        addresses=tuple(value.get("addresses", ())),
        peer_secret=value.get("peer_secret", ""),
        framework_version=value["framework_version"],
        python=value.get("python"),
        log=StreamName(**value.get("log", {"group": "", "stream": ""})),
        serves=value.get("serves", "tensorflow-serving"),
        notices=tuple(value.get("notices", ())),
        variables=value.get("variables", {}),
        config=value.get("config", {}),
        remotes={pattern: RemoteS3(**remote) for pattern, remote in value.get("remotes", {}).items()},
        synced=tuple(SyncedDirectory(**each) for each in value.get("synced", ())),
        entrypoint=tuple(value.get("entrypoint", ())),
        max_runtime_s=value.get("max_runtime_s", 0),
        grace_s=value.get("grace_s", 120),
        warm=value.get("warm", False),
        closed=value.get("closed", False),
        encrypted=value.get("encrypted", False),
        serves_network=value.get("serves_network", False),
        compiler_cache=value.get("compiler_cache", ""),
        artifacts_uri=value.get("artifacts_uri", ""),
        gpus=value.get("gpus", 0),
        limits=InstanceLimits(**value.get("limits", {})),
    )


def object_to_json(value: ObjectFile) -> dict[str, Any]:
    return asdict(value)


def object_from_json(value: Mapping[str, Any]) -> ObjectFile:
    return ObjectFile(
        uri=value["uri"],
        name=value["name"],
        file=value["file"],
        size_bytes=value["size_bytes"],
        sha256=value["sha256"],
        origin_uri=value.get("origin_uri", ""),
        origin_remote=value.get("origin_remote", ""),
    )


def entry_to_json(value: Entry) -> dict[str, Any]:
    """Return the JSON of one entry of a channel's listing."""
    # Not asdict, which copies each value and takes ten times as long: there may be a million entries.
    names = _PLAIN_FILE if isinstance(value, ObjectFile) and not value.origin_uri else value.__slots__
    return {name: getattr(value, name) for name in names}


def entry_from_json(value: Mapping[str, Any]) -> Entry:
    """Parse the output of `entry_to_json`."""
    if "text" in value:
        return InlineText(text=value["text"])
    if "remote" not in value:
        return object_from_json(value)
    return RemoteObject(
        uri=value["uri"],
        name=value["name"],
        size_bytes=value["size_bytes"],
        etag=value["etag"],
        remote=value["remote"],
    )


def exit_to_json(value: InstanceExit) -> dict[str, Any]:
    return {
        "outcome": value.outcome.value,
        "failure": value.failure,
        "ended_ms": value.ended_ms,
        "lost": value.lost,
        "training_started_ms": value.training_started_ms,
        "training_ended_ms": value.training_ended_ms,
        "artifacts": {
            name: {"size_bytes": a.size_bytes, "sha256": a.sha256, "md5": a.md5} for name, a in value.artifacts.items()
        },
        "record": dict(value.record),
        "peak_rss_bytes": value.peak_rss_bytes,
    }


def exit_from_json(value: Mapping[str, Any]) -> InstanceExit:
    return InstanceExit(
        outcome=Outcome(value["outcome"]),
        failure=value["failure"],
        ended_ms=value["ended_ms"],
        lost=value.get("lost", False),
        training_started_ms=value.get("training_started_ms"),
        training_ended_ms=value.get("training_ended_ms"),
        artifacts={
            name: Artifact(size_bytes=a["size_bytes"], sha256=a["sha256"], md5=a["md5"])
            for name, a in value.get("artifacts", {}).items()
        },
        record=value.get("record", {}),
        peak_rss_bytes=value.get("peak_rss_bytes", 0),
    )


def channel_to_json(channel: ChannelSpec) -> dict[str, Any]:
    """Return the JSON of a channel without its objects."""
    return {
        "name": channel.name,
        "input_mode": channel.input_mode,
        "compression": channel.compression,
        "record_wrapper": channel.record_wrapper,
        "share": channel.share,
        "shuffle_seed": channel.shuffle_seed,
        "entries_per_item": channel.entries_per_item,
    }


def channel_from_json(value: Mapping[str, Any]) -> ChannelSpec:
    return ChannelSpec(
        name=value["name"],
        objects=(),
        input_mode=value.get("input_mode", "Pipe"),
        compression=value.get("compression", "None"),
        record_wrapper=value.get("record_wrapper", "None"),
        share=(value["share"][0], value["share"][1]),
        shuffle_seed=value.get("shuffle_seed"),
        entries_per_item=value.get("entries_per_item", 1),
    )
