"""The interface between the control plane and whatever runs instances: calls to an executor, and their arguments.

An instance is one SageMaker host (``algo-1``) of a job or of an endpoint. An executor may run it on this machine or on
another one, so the two sides exchange no paths. The executor gets objects as references. It returns log lines through
the service's log store, artifacts as a `Publication`, and the address of an endpoint as a URL.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from tidemill.instance.spec import InstanceRef, InstanceSpec, Isolation, ObjectReference, StreamName
from tidemill.instance.status import InstanceStatus, StopReason

__all__ = ["Capacity", "Executor", "KnownInstance", "LogSink", "ObjectSource", "Publication"]

Publication = Path | AsyncIterator[bytes]
"""An artifact on its way to the object store: a file of this machine to be adopted without a copy, or its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What an executor can run at the same time.

    Attributes:
        instances: Training instances; more than these wait in the queue.
        cpus: Processors of all machines.
        gpus: Accelerators of all machines.
        shares_gpus: Whether several instances may have the same GPU.
    """

    instances: int
    cpus: int
    gpus: int
    shares_gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownInstance:
    """An instance that an earlier service launched, and the job or endpoint that it belongs to."""

    ref: InstanceRef
    kind: str
    job_name: str


class ObjectSource(Protocol):
    """Gives an executor the objects that specs refer to. The executor decides how they get to the instance."""

    def open(self, reference: ObjectReference) -> BinaryIO:
        """Open the content of an object. It is immutable; the reader verifies its digest.

        Raises:
            FileNotFoundError: The object was deleted or replaced, and its content is gone.
        """
        ...


class LogSink(Protocol):
    """Takes the logs of instances that cannot write to the service's log store themselves."""

    def received_bytes(self, stream: StreamName) -> int:
        """Return how much of a stream the service has: the offset from which to deliver."""
        ...

    def append(self, stream: StreamName, lines: bytes, *, offset: int) -> None:
        """Store lines. Delivering lines again that the service has changes nothing.

        Args:
            stream: The spec's ``log``.
            lines: Whole stored lines, each ``MILLISECONDS SP MESSAGE LF``.
            offset: Where ``lines`` begin in the stream, in bytes.

        Raises:
            ValueError: There is a gap before ``offset``, or the last line is incomplete.
            OSError: They could not be stored; deliver them again later.
        """
        ...


class Executor(Protocol):
    """Places and starts instances.

    Every method is idempotent, and returns the same after a restart of the service. A job may be launched several
    times, each time as a new attempt (`InstanceRef.attempt`). A launch ends older attempts of the same instances, and
    what these report afterwards never appears in the status of a newer attempt.
    """

    @property
    def isolation(self) -> Isolation: ...

    @property
    def no_network(self) -> str:
        """The reason why jobs cannot get a separate network, which EnableNetworkIsolation needs; empty if they can."""
        ...

    def capacity(self) -> Capacity: ...

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        """Start instances of one job, all or none. Instances that run or have ended are not changed.

        Args:
            specs: The specs of one attempt. Older attempts of these instances are killed first.

        Raises:
            CapacityError: The executor has no machines for the instances.
            MachinesBusy: The machines for the instances run other instances: launch these later.
            LaunchError: An instance cannot be started: those of ``specs`` that were started have been killed and
                removed, none counts as launched, and the launch may be repeated. Or a newer attempt was launched
                before: nothing has changed.
        """
        ...

    def relaunch(self, ref: InstanceRef) -> None:
        """Start an instance that was launched, if the service died before it could start it."""
        ...

    def recover(self, *, finished: Callable[[str], bool]) -> list[KnownInstance]:
        """Find the instances that earlier services launched. Those that run report to `changed` from now on.

        Args:
            finished: Whether a job id belongs to a job that is cleaned up. Its instances are left out.
        """
        ...

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        """Return what the attempt of ``ref`` has reported. When it has ended, its whole log is in the log store."""
        ...

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        """Send SIGTERM to the script's process group, SIGKILL after the grace time; end at once if no script runs."""
        ...

    def kill(self, ref: InstanceRef) -> None:
        """Send SIGKILL to the instance and all its descendants."""
        ...

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        """Wait up to ``timeout_s`` seconds until instances report something new. Returns an empty set if none does."""
        ...

    def endpoint_url(self, ref: InstanceRef) -> str | None:
        """Return where an endpoint's server listens: ``http+unix://PATH`` (percent-encoded) or ``http://HOST:PORT``.

        None while that is not known yet.
        """
        ...

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        """Bring the archive of a model to the server of an endpoint. A load request then refers to it by its name.

        Args:
            ref: A running instance.
            archive: The object. An earlier file of that name is replaced.
            name: Name of the file, without ``/``.

        Raises:
            LaunchError: It cannot be brought there.
        """
        ...

    def publication(self, ref: InstanceRef, name: str) -> Publication | None:
        """Return an artifact of an instance that has ended, by its name in `InstanceExit.artifacts`; None if gone."""
        ...

    def reap(self, job_id: str) -> None:
        """Kill the remaining processes of a job and remove its files. `observe` still returns its last reports."""
        ...
