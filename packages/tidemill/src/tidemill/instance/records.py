"""Specs, objects and exits as JSON: the content of the files between server and shim.

They are read leniently (`tidemill.core.documents`). So a newer server can read the files of an older shim, and an older
shim can run the spec of a newer server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill.core.documents import members_of, parsed
from tidemill.instance.spec import (
    ChannelSpec,
    Entry,
    InlineText,
    InstanceSpec,
    ObjectFile,
    RemoteObject,
)
from tidemill.instance.status import InstanceExit

FAST_FILE_CACHE_MAX_BYTES = 64 << 30
RESTORED = "@restored"
"""Name of the listing of checkpoints to restore, next to those of the channels. No channel can have this name."""
_PLAIN_FILE = ("uri", "name", "file", "size_bytes", "sha256")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Facts about the machine that the shim needs; the shim never reads settings.

    Attributes:
        state_dir: The service's state directory, hidden from jobs; contains ``notify.sock``.
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
        members = members_of(self, without=("spec", "site"))
        # No member is None, and numbers are text, as in the files of earlier versions.
        site = {
            name: value if isinstance(value, list) else str(value)
            for name, value in members_of(self.site).items()
            if value is not None
        }
        pipes = [channel_to_json(pipe) for pipe in self.pipes]
        return {"version": 1, **spec_to_json(self.spec), **members, "pipes": pipes, "site": site}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SpecRecord":
        """Parse a record.

        Raises:
            KeyError: A required member is missing.
        """
        pipes = [{**_CHANNEL, **pipe} for pipe in value.get("pipes", ())]
        return parsed(cls, {"channels": (), **value, "pipes": pipes, "spec": _spec_members(value)})


def spec_to_json(spec: InstanceSpec) -> dict[str, Any]:
    """Return a spec without its inputs: ``channels``, ``restored``, ``code`` and ``model`` are in other files."""
    return {**members_of(spec.ref), **members_of(spec, without=("ref", "channels", "restored", "code", "model"))}


def spec_from_json(value: Mapping[str, Any]) -> InstanceSpec:
    """Parse the output of `spec_to_json`.

    Raises:
        KeyError: A required member is missing.
    """
    return parsed(InstanceSpec, _spec_members(value))


def _spec_members(value: Mapping[str, Any]) -> dict[str, Any]:
    inputs = ("channels", "restored", "code", "model")
    members = {name: each for name, each in value.items() if name not in inputs}
    return {"log": {"group": "", "stream": ""}, **members, "ref": value}


def entry_to_json(value: Entry) -> dict[str, Any]:
    """Return the JSON of one entry of a channel's listing."""
    # Not `members_of`, which takes ten times as long: there may be a million entries.
    names = _PLAIN_FILE if isinstance(value, ObjectFile) and not value.origin_uri else value.__slots__
    return {name: getattr(value, name) for name in names}


def entry_from_json(value: Mapping[str, Any]) -> Entry:
    """Parse the output of `entry_to_json`."""
    if "text" in value:
        return InlineText(text=value["text"])
    kind = RemoteObject if "remote" in value else ObjectFile
    try:
        return kind(**value)  # a third faster: there may be a million entries
    except TypeError:
        return parsed(kind, value)


def exit_to_json(value: InstanceExit) -> dict[str, Any]:
    return members_of(value)


def exit_from_json(value: Mapping[str, Any]) -> InstanceExit:
    return parsed(InstanceExit, value)


def channel_to_json(channel: ChannelSpec) -> dict[str, Any]:
    """Return the JSON of a channel without its objects."""
    return members_of(channel, without=("objects", "digest"))


def channel_from_json(value: Mapping[str, Any]) -> ChannelSpec:
    return parsed(ChannelSpec, {**_CHANNEL, **value})


_CHANNEL: Mapping[str, Any] = {"objects": (), "input_mode": "Pipe"}
"""Members of a channel that its JSON lacks: its objects, and the mode in files of earlier versions."""
