"""The interface between the control plane and the executors that run instances.

An instance is one SageMaker host (``algo-1``) of a job or of an endpoint. An executor may run it on this machine or on
another one, so the two sides exchange no paths. The executor gets objects as references. It returns log lines through
the service's log store, artifacts as a `Publication`, and the address of a model server as a `ServerAddress`.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from tidemill.core.instances import InstanceRef, Isolation, ObjectReference, StreamName
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceStatus, StopReason

Publication = Path | AsyncIterator[bytes]
"""An artifact on its way to the object store: a file of this machine to be adopted without a copy, or its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The capacity of an executor.

    Attributes:
        instances: Maximum number of concurrent training instances; more instances wait in the queue.
        cpus: Number of processors of all machines.
        shares_gpus: Whether several instances may use the same GPU.
    """

    instances: int
    cpus: int
    gpus: int
    shares_gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownInstance:
    """An instance that an earlier service launched, and its job or endpoint.

    Attributes:
        kind: ``training``, ``processing``, ``transform`` or ``endpoint``.
        job_name: Name of the job or endpoint.
    """

    ref: InstanceRef
    kind: str
    job_name: str


class EventFile(NamedTuple):
    """An event file of TensorBoard that a running instance has written.

    Attributes:
        name: Path below ``/opt/ml``, e.g. ``output/data/train/events.out.tfevents.1``.
        identity: Changes when another file takes the name.
    """

    name: str
    size_bytes: int
    identity: str


@dataclass(frozen=True, slots=True)
class UnixServer:
    """A model server of this machine.

    Attributes:
        path: Path of its socket, which may be too long for a socket address.
    """

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayedServer:
    """A model server of another machine, which `tidemill.executors.cluster.relay_client` reaches.

    Attributes:
        host: IP address of the machine.
        certificate: The only certificate that the relay may present, in PEM.
        secret: Proves to the relay that the service asks.
    """

    host: str
    port: int
    certificate: str
    secret: str = field(repr=False)


ServerAddress = UnixServer | RelayedServer


class LogSink(Protocol):
    """Stores the logs of instances that cannot write to the service's log store directly."""

    def create(self, stream: StreamName) -> None:
        """Create a stream durably, unless it exists, so that it is listed before its first line."""

    def received_bytes(self, stream: StreamName) -> int:
        """Return the size in bytes of the part of a stream that the service has: the offset of the next delivery."""

    def append(self, stream: StreamName, lines: bytes, *, offset: int) -> None:
        """Append lines to a stream. Lines that the service has already are ignored.

        Args:
            stream: The spec's ``log``.
            lines: Complete lines in the format of the log store, each ``MILLISECONDS SP MESSAGE LF``.
            offset: Offset of ``lines`` in the stream, in bytes.

        Raises:
            ValueError: There is a gap before ``offset``, or the last line is incomplete.
            OSError: The lines could not be stored; deliver them again later.
        """

    def add_samples(self, stream: StreamName, lines: bytes) -> None:
        """Store samples of what the instance of a stream uses, except those that are stored already.

        Args:
            stream: The spec's ``log``.
            lines: Whole lines in the format of `tidemill.instance.samples`.

        Raises:
            ValueError: There is no sample and no description of an instance in the lines.
            OSError: They could not be stored.
        """


class Executor(Protocol):
    """Places and starts instances.

    Every method is idempotent, and returns the same after a restart of the service. A job may be launched several
    times, each time as a new attempt (`InstanceRef.attempt`). A launch ends older attempts of the same instances. Late
    reports of an older attempt never appear in the status of a newer attempt.
    """

    @property
    def isolation(self) -> Isolation:
        """The isolation mode of jobs that do not need a separate network."""

    @property
    def no_network(self) -> str:
        """The reason why jobs cannot get a separate network, which EnableNetworkIsolation needs; empty if they can."""

    def capacity(self) -> Capacity:
        """Return the capacity, which may change while the service runs. Does not block."""

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        """Start instances of one job, all or none. Instances that run or have ended are not changed.

        Their log streams exist from then on, even before the first line.

        Args:
            specs: The specs of one attempt. Older attempts of these instances are killed first.

        Raises:
            CapacityError: The executor has no machines for the instances.
            MachinesBusy: The machines for the instances run other instances; repeat the launch later.
            LaunchError: An instance cannot be started. Then the started instances of ``specs`` have been killed and
                removed, none counts as launched, and the launch may be repeated. Also raised, without any change, if
                a newer attempt was launched before.
        """

    def relaunch(self, ref: InstanceRef) -> None:
        """Start an instance that was launched, if the service died before it could start it.

        Args:
            ref: The attempt; one that runs or has ended stays as it is.
        """

    def recover(self, *, finished: Callable[[str], bool]) -> list[KnownInstance]:
        """Find the instances that earlier services launched. From now on, `changed` also returns the running ones.

        Args:
            finished: Returns whether the job with a job id is cleaned up; then its instances are skipped.
        """

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        """Return the reported status of the attempt ``ref``. When it has ended, the log store has its whole log.

        Returns:
            ``launched`` is False for an attempt that this executor does not know.
        """

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        """Send SIGTERM to the script's process group, SIGKILL after the grace time; end at once if no script runs.

        Args:
            ref: The attempt; no effect after its end.
            reason: Reported with its end.
        """

    def kill(self, ref: InstanceRef) -> None:
        """Send SIGKILL to the instance and all its descendants.

        Args:
            ref: The attempt.
        """

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        """Wait up to ``timeout_s`` seconds for new reports. Return the instances that reported; empty on time-out.

        Args:
            timeout_s: Longest wait in seconds.
        """

    def server_address(self, ref: InstanceRef) -> ServerAddress | None:
        """Return the address of an instance's model server; None until it is known. The server may not listen yet.

        Args:
            ref: The attempt of an endpoint or of a transform job.
        """

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        """Copy the archive of a model to the instance of an endpoint. A later load request names the file.

        Args:
            ref: A running instance.
            name: Name of the file in the instance, without ``/``. An existing file is replaced.

        Raises:
            LaunchError: The archive cannot be copied.
        """

    def event_files(self, ref: InstanceRef) -> Sequence[EventFile]:
        """Return the event files of TensorBoard that an instance of this machine has written; none of other machines.

        Args:
            ref: The attempt.
        """

    def open_event_file(self, ref: InstanceRef, name: str) -> int:
        """Return a descriptor of an event file, which the caller closes.

        Args:
            name: Its name, as `event_files` returns it.

        Raises:
            OSError: It was removed.
        """

    def publication(self, ref: InstanceRef, name: str) -> Publication | None:
        """Return an artifact of an ended instance by its name in `InstanceExit.artifacts`; None if it was removed.

        Args:
            name: For example ``model``.
        """

    def reap(self, job_id: str, *, keep_files: bool = False) -> bool:
        """Kill the remaining processes of a job and remove its files. `observe` still returns its last reports.

        Return False if a file could not be removed. The rest is removed, and the executor tries again later.

        Args:
            keep_files: Do not remove files on the service's machine. Default: false.
        """
