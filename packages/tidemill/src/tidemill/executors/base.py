"""The seam behind which instances run. The same shim runs every instance; an executor places and starts shims.

An instance is one SageMaker host (``algo-1``) of a job, or of an endpoint. Everything about it stands in files of its
directory, so that a server that comes back after kill -9 finds the truth there (`docs/reference/instance-files.md`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from tidemill.core.remotes import RemoteS3

__all__ = [
    "Artifact",
    "ChannelSpec",
    "Entry",
    "Executor",
    "InlineText",
    "InstanceExit",
    "InstanceRef",
    "InstanceSpec",
    "InstanceStatus",
    "Isolation",
    "ObjectFile",
    "Outcome",
    "Phase",
    "RemoteObject",
    "StopReason",
]


class Isolation(StrEnum):
    """How far an instance is separated from the machine. The mode in force is said in the job's log."""

    FULL = "full"
    """Private /opt/ml, own network namespace with real addresses."""
    MOUNT = "mount"
    """Private /opt/ml, HOME and temporary directories; the state directory and the user's keys are out of sight."""
    PLAIN = "plain"
    """SAGEMAKER_BASE_DIR instead of /opt/ml; nothing is hidden."""


class StopReason(StrEnum):
    """Why an instance was asked to stop."""

    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime_exceeded"


class Outcome(StrEnum):
    """How an instance ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    MAX_RUNTIME = "max_runtime_exceeded"


@dataclass(frozen=True, slots=True, order=True)
class InstanceRef:
    """One instance. ``job_id`` is the executor's directory name: hexadecimal, never a user's text."""

    job_id: str
    instance_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFile:
    """An object of the local object store, resolved to its immutable file.

    Attributes:
        uri: ``s3://bucket/key``, for messages.
        name: Path below the channel directory, ``/``-separated; the shim checks it segment by segment.
        file: Absolute path of the content.
        sha256: Of the content, hexadecimal; the shim verifies it while copying.
    """

    uri: str
    name: str
    file: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineText:
    """A value of an augmented manifest that is streamed as it stands there."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteObject:
    """An object of a remote S3, as it was when the job was planned.

    Attributes:
        uri: ``s3://bucket/key``.
        name: As in `ObjectFile`.
        etag: As the store gave it, quotes and all. An object of another one is another object.
        remote: Which of the spec's ``remotes`` has it.
    """

    uri: str
    name: str
    size_bytes: int
    etag: str
    remote: str


Entry = ObjectFile | InlineText | RemoteObject
"""What a channel is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """One input channel. All members after ``input_mode`` are for Pipe mode.

    Attributes:
        objects: What belongs to it, in order. `InlineText` is for Pipe mode only.
        input_mode: ``File`` or ``Pipe``.
        compression: ``Gzip`` unpacks objects on the way; else ``None``.
        record_wrapper: ``RecordIO`` makes each entry one record; else ``None``.
        distribution: ``ShardedByS3Key`` gives each instance its part of the items; else ``FullyReplicated``.
        shuffle_seed: Of the order of items, which is another one in every epoch; None keeps their order.
        entries_per_item: How many neighbours stay together, e.g. the attributes of one line of a manifest.
    """

    name: str
    objects: Iterable[Entry]
    input_mode: str = "File"
    compression: str = "None"
    record_wrapper: str = "None"
    distribution: str = "FullyReplicated"
    shuffle_seed: int | None = None
    entries_per_item: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """Everything the shim needs to run one instance.

    Attributes:
        kind: ``training`` runs tidemill-runtime once; ``endpoint`` keeps tidemill-serving running.
        hosts: Names of all instances of the job, in order; this one is ``hosts[ref.instance_index]``.
        framework_version: TensorFlow ``major.minor`` of the environment, e.g. ``2.21``.
        notices: Lines for the job's log before anything runs (e.g. a version that was replaced).
        variables: Environment of the job on top of what the shim makes: the user's, credentials, region.
        config: ``/opt/ml/input/config`` by file name without ``.json``, e.g. hyperparameters.
        code: The submitted ``sourcedir.tar.gz``.
        model: The ``model.tar.gz`` of an endpoint.
        remotes: Where the `RemoteObject` entries of the channels lie.
        entrypoint: A ContainerEntrypoint with its arguments; empty runs the script as the training toolkit does.
        max_runtime_s: SIGTERM after that time in Training; 0 means none.
        grace_s: Between SIGTERM and SIGKILL.
        log_directory: Directory of the segment files of this instance's log stream.
        warm: Fork the script from a process that has TensorFlow imported.
    """

    ref: InstanceRef
    kind: str
    job_name: str
    hosts: tuple[str, ...]
    framework_version: str
    log_directory: Path
    notices: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    code: ObjectFile | None = None
    model: ObjectFile | None = None
    channels: tuple[ChannelSpec, ...] = ()
    remotes: Mapping[str, RemoteS3] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    max_runtime_s: float = 0
    grace_s: float = 120
    warm: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """A step of an instance, by SageMaker's SecondaryStatus name (endpoints end in ``Serving``)."""

    status: str
    started_ms: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file that the shim made, to be taken over by the object store."""

    file: Path
    size_bytes: int
    sha256: str
    md5: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceExit:
    """The last word of an instance.

    Attributes:
        failure: FailureReason text of at most 1,024 characters; empty unless failed.
        artifacts: ``model`` and ``output``, where there is something in them.
        record: What is needed to repeat the run: environment key and lock digest, command, code digest.
        training_started_ms: When the script was started; None if it never was.
    """

    outcome: Outcome
    failure: str
    ended_ms: int
    training_started_ms: int | None = None
    training_ended_ms: int | None = None
    artifacts: Mapping[str, Artifact] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    peak_rss_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """What the files of an instance say now.

    Attributes:
        launched: A spec was written: ``launch`` may be called again to make sure that a shim runs.
        running: Its shim lives (or has been started a moment ago and has not yet reported).
        exit: Set when it ended in order. Neither running nor exit, although launched: the shim was lost.
    """

    launched: bool
    running: bool
    phases: tuple[Phase, ...]
    exit: InstanceExit | None


class Executor(Protocol):
    """Places and starts instances. Every method is idempotent and answers from files alone after a restart."""

    @property
    def isolation(self) -> Isolation: ...

    def launch(self, spec: InstanceSpec) -> None:
        """Write the spec durably and start its shim. Starting an instance that runs or has ended does nothing.

        Raises:
            LaunchError: The directory or the shim cannot be made.
        """
        ...

    def relaunch(self, ref: InstanceRef) -> None:
        """Start the shim of an instance whose spec is written, in case the server died before it could."""
        ...

    def observe(self, ref: InstanceRef) -> InstanceStatus: ...

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        """SIGTERM to the script's process group, SIGKILL after the grace time. Before the script runs: end at once."""
        ...

    def kill(self, ref: InstanceRef) -> None:
        """SIGKILL to the shim and all below it."""
        ...

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        """Wait until instances report something new, at most ``timeout_s``; the empty set on time-out."""
        ...

    def socket_path(self, ref: InstanceRef) -> Path:
        """Unix socket of an endpoint's server."""
        ...

    def reap(self, job_id: str) -> None:
        """Kill what is left of a job and remove its big directories; its small records stay."""
        ...
