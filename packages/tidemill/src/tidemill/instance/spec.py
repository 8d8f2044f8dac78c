"""The spec of an instance: everything that its shim gets from the service, as values."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.core.frameworks import environment_of
from tidemill.core.instances import InstanceRef, ObjectReference, StreamName
from tidemill.core.job_scope import HolderKind, session_name
from tidemill.core.limits import InstanceLimits
from tidemill.core.remotes import RemoteS3

FAST_FILE = "FastFile"
"""An input mode of a channel; see `ChannelSpec`."""
PROCESSING = "processing"
"""A kind of instance; see `InstanceSpec`."""
SERVICE = "@service"
"""Name of the service's S3 among the remote stores of an assignment. No bucket can have it. Requests to it are signed
with the keys of the job; other stores get those that the machine has for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectFile:
    """An `ObjectReference` resolved by an executor to an immutable file of the instance's machine.

    Attributes:
        uri: ``s3://bucket/key``, for messages.
        name: Path below the channel directory, ``/``-separated; the shim checks it segment by segment.
        file: Absolute path of the content; with an origin, of its copy on this machine, which may not be there yet.
        sha256: SHA-256 of the content, hexadecimal; the shim verifies it while copying.
        origin_uri: ``s3://bucket/key`` in another S3, from which the shim fetches the copy; empty if there is none.
        origin_remote: Name of that S3 among the spec's ``remotes``.
    """

    uri: str
    name: str
    file: str
    size_bytes: int
    sha256: str
    origin_uri: str = ""
    origin_remote: str = ""

    @property
    def origin(self) -> "RemoteObject | None":
        """The object of another S3 that is the content; None if ``file`` is."""
        if not self.origin_uri:
            return None
        return RemoteObject(
            uri=self.origin_uri, name=self.name, size_bytes=self.size_bytes, etag="", remote=self.origin_remote
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineText:
    """A value of an augmented manifest that is streamed unchanged."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteObject:
    """An object of a remote S3, as it was when the job was planned.

    Attributes:
        uri: ``s3://bucket/key``.
        name: As in `ObjectFile`.
        etag: ETag from the store, with its quotes. If the object has another ETag when it is read, it was replaced.
            Empty for an object that is never replaced.
        remote: Name of the store among the spec's ``remotes``.
    """

    uri: str
    name: str
    size_bytes: int
    etag: str
    remote: str


Input = ObjectReference | InlineText | RemoteObject
"""An input of a channel in a spec."""
Entry = ObjectFile | InlineText | RemoteObject
"""An entry in the listing of a channel that the shim reads: an input, with references resolved to files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelSpec:
    """One input channel. The members between ``input_mode`` and ``digest`` are for Pipe mode.

    Attributes:
        objects: The inputs, in order. `InlineText` is for Pipe mode only.
        input_mode: ``File``, ``Pipe``, or ``FastFile``. ``FastFile`` reads the objects of a channel on demand if one of
            them is in a remote S3; else it is the same as ``File``.
        compression: ``Gzip`` decompresses objects while they are streamed; else ``None``.
        record_wrapper: ``RecordIO`` makes each entry one record; else ``None``.
        share: ``(i, n)`` for item ``i`` and every ``n``-th after it: one of the ``n`` parts into which the instances
            divide the items; ``(0, 1)`` for all items.
        shuffle_seed: Seed of the order of items, which differs in every epoch; None keeps their order.
        entries_per_item: Number of adjacent entries that stay together, e.g. the attributes of one line of a manifest.
        digest: Digest of the names and contents of the channel's files in the service's store; empty if it is unknown.
            Instances whose channels have the same digest share one directory of links.
    """

    name: str
    objects: Iterable[Input]
    input_mode: str = "File"
    compression: str = "None"
    record_wrapper: str = "None"
    share: tuple[int, int] = (0, 1)
    shuffle_seed: int | None = None
    entries_per_item: int = 1
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedDirectory:
    """A directory whose files are uploaded while the script runs, and once more when it has ended.

    Attributes:
        path: Path below ``/opt/ml``, ``/``-separated, e.g. ``output/tensorboard``; created before the script starts.
        uri: ``s3://bucket/prefix`` without a trailing slash, to which a file's path below the directory is appended.
        whole: Upload a file once it has stopped changing; False uploads it whenever it has grown.
        restored: Download the objects of ``InstanceSpec.restored`` into the directory before the script starts.
        mounted_at: Absolute path outside ``/opt/ml`` at which the script sees the directory; ``path`` is then next to
            the instance's ``/opt/ml``. Empty: the directory is below ``/opt/ml``.
        at_end: Upload only when the script has ended, and only if it did not fail.
        required: A file that cannot be uploaded makes the job fail; else it is noted in the job's log.
    """

    path: str
    uri: str
    whole: bool = False
    restored: bool = False
    mounted_at: str = ""
    at_end: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSpec:
    """Everything the shim needs to run one instance.

    Attributes:
        kind: ``training`` and ``processing`` run tidemill-runtime once; ``endpoint`` and ``transform`` keep
            tidemill-serving running.
        hosts: Names of all instances of the job, in order; this one is ``hosts[ref.instance_index]``.
        addresses: IP addresses of the machines of ``hosts``, if they are on different machines; else empty.
        peer_secret: Secret with which the instances of this attempt authenticate each other on the network,
            hexadecimal; empty if they run on one machine.
        framework_version: ``major.minor`` of the environment's TensorFlow, e.g. ``2.21``; or of its scikit-learn.
        family: First part of the environment's name: ``tf``, or ``sklearn``.
        python: Minor version of its Python, e.g. ``3.11``; None uses one that is installed on the machine.
        serves: Kind of the endpoint: ``tensorflow-serving``, or ``python`` with the script of ``code``.
        notices: First lines of the job's log, e.g. that the framework version was replaced.
        variables: Environment variables added to those of the shim: the user's, credentials, region.
        config: Configuration files by name without ``.json``, e.g. hyperparameters.
        config_directory: Their directory below ``/opt/ml``.
        channel_paths: Directories below ``/opt/ml`` of channels that are not at ``input/data/NAME``, by name.
        copied_channels: Channels whose files are copied, because the script's outputs are in the same directory.
        code: The submitted ``sourcedir.tar.gz``, of a job or of a ``python`` endpoint.
        model: The ``model.tar.gz`` of an endpoint.
        remotes: Remote S3 stores of the `RemoteObject` entries of the channels.
        synced: Directories to upload while the script runs, with the keys in ``variables``.
        restored: Objects to download into the `SyncedDirectory` of checkpoints before the script starts.
        entrypoint: A ContainerEntrypoint with its arguments; empty runs the script as the training toolkit does.
        max_runtime_s: Seconds in phase Training after which the script gets SIGTERM; 0 for no limit.
        grace_s: Seconds between SIGTERM and SIGKILL.
        gpus: How many GPUs the instance gets; with any, its environment is that for GPUs.
        limits: Limits of memory, processors, processes and disk.
        instance_types: The type of each of ``hosts`` in the request, e.g. ``ml.m5.large``; empty if it is serverless.
        agent_variables: Region and keys with which an agent on another machine reports and fetches archives; empty if
            they are those in ``variables``.
        warm: Fork the script from a process that has imported TensorFlow.
        serves_network: The script listens on all interfaces, so it gets a private network if the machine allows it.
        closed: The job's network connects only its own instances (EnableNetworkIsolation).
        encrypted: What instances on different machines send each other is encrypted
            (EnableInterContainerTrafficEncryption).
        artifacts_uri: ``s3://bucket/prefix`` of the job's model.tar.gz and output.tar.gz; an executor on
            another machine may upload them there itself.
        compiler_cache: Hexadecimal name of a directory below ``compiler`` of the state directory, in which the training
        compiler stores its decisions for all jobs with the same role. Empty for jobs without the compiler.
    """

    ref: InstanceRef
    kind: str
    job_name: str
    hosts: tuple[str, ...]
    framework_version: str
    log: StreamName
    addresses: tuple[str, ...] = ()
    peer_secret: str = field(default="", repr=False)
    family: str = "tf"
    python: str | None = None
    serves: str = "tensorflow-serving"
    notices: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    config_directory: str = "input/config"
    channel_paths: Mapping[str, str] = field(default_factory=dict)
    copied_channels: tuple[str, ...] = ()
    code: ObjectReference | None = None
    model: ObjectReference | None = None
    channels: tuple[ChannelSpec, ...] = ()
    remotes: Mapping[str, RemoteS3] = field(default_factory=dict)
    synced: tuple[SyncedDirectory, ...] = ()
    restored: Iterable[Input] = ()
    entrypoint: tuple[str, ...] = ()
    max_runtime_s: float = 0
    grace_s: float = 120
    warm: bool = False
    closed: bool = False
    encrypted: bool = False
    serves_network: bool = False
    artifacts_uri: str = ""
    compiler_cache: str = ""
    gpus: int = 0
    limits: InstanceLimits = field(default_factory=InstanceLimits)
    instance_types: tuple[str, ...] = ()
    agent_variables: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def runs_a_script(self) -> bool:
        """Whether the instance runs a script to its end, rather than a server."""
        return self.kind in ("training", PROCESSING)

    @property
    def session(self) -> str:
        """Name of the session of the keys that the service issues to the job or endpoint."""
        kind = HolderKind.ENDPOINT if self.kind == "endpoint" else HolderKind(f"{self.kind}-job")
        return session_name(kind, self.job_name)

    @property
    def environment(self) -> str:
        """Name of the environment of the instance, e.g. ``tf-2.21``."""
        return environment_of(self.framework_version, gpu=self.gpus > 0, family=self.family)
