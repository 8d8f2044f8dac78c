"""The instances of a cluster as the service knows them: what their agents report, and until when their leases last.

An agent renews the lease of its instance with every report. An instance whose lease has ended counts as lost: by then
its agent has ended it, whether it could reach the service or not. So no two attempts of an instance ever run at once.
"""

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tidemill.core.files import read_json, write_json
from tidemill.executors.base import KnownInstance, LogSink
from tidemill.executors.cluster.reports import UnknownInstance
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.records import exit_from_json, spec_from_json, spec_to_json
from tidemill.instance.spec import InstanceRef, InstanceSpec
from tidemill.instance.status import InstanceExit, InstanceStatus, Phase, StopReason

__all__ = ["ClusterInstances"]

_LEASE_FILE = "lease"
_ENDED_S = 1.0


class ClusterInstances:
    """Records of instances below ``root``. May be used from several threads.

    Args:
        root: Directory of the records, on the service's machine.
        logs: Takes the lines of logs.
        lease_s: Length of a lease.
        changed: Called with each instance that has news.
    """

    def __init__(
        self, root: Path, *, logs: LogSink, lease_s: float, changed: Callable[[InstanceRef], None] = lambda _: None
    ) -> None:
        self._root = root
        self._logs = logs
        self._lease_s = lease_s
        self._changed = changed
        self._lock = threading.Lock()
        self._waiting: dict[InstanceRef, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._closing = False

    @property
    def lease_s(self) -> float:
        return self._lease_s

    def directory(self, ref: InstanceRef) -> InstanceDirectory:
        return InstanceDirectory.of(self._root, ref)

    def knows(self, ref: InstanceRef) -> bool:
        """Whether an attempt was launched and not reaped."""
        return self.directory(ref).spec_file.exists()

    def known(self, job_id: str | None = None) -> Iterator[InstanceRef]:
        """Yield every attempt that was launched and not reaped."""
        for directory in InstanceDirectory.all_below(self._root, job_id):
            yield directory.ref

    def spec(self, ref: InstanceRef) -> InstanceSpec:
        """Return the spec of an attempt, without its inputs.

        Raises:
            UnknownInstance: There is no such attempt.
        """
        value = read_json(self.directory(ref).spec_file)
        if value is None:
            raise UnknownInstance(f"attempt {ref.attempt} of instance {ref.instance_index} of job {ref.job_id} is over")
        return spec_from_json(value)

    def add(self, spec: InstanceSpec) -> None:
        """Record an attempt that is about to start. Its lease begins."""
        directory = self.directory(spec.ref)
        directory.path.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._renew(spec.ref)
        write_json(directory.spec_file, {"version": 1, **spec_to_json(spec)})

    def identify(self, ref: InstanceRef) -> KnownInstance | None:
        """Return which job an attempt belongs to; None if its record cannot be read."""
        with contextlib.suppress(ValueError, KeyError, TypeError, UnknownInstance):
            spec = self.spec(ref)
            return KnownInstance(ref=ref, kind=spec.kind, job_name=spec.job_name)
        return None

    def report(
        self, ref: InstanceRef, *, job_name: str, phases: Sequence[Phase], ended: str, lost: bool
    ) -> StopReason | None:
        result = _exit(ended) if ended else None
        with self._lock:
            directory = self._checked(ref, job_name)
            first = result is not None and directory.read_exit() is None
            news = lost or first
            if phases and tuple(phases) != directory.read_phases():
                directory.write_phases(phases)
                news = True
            if result is not None and first:
                directory.write_exit(result)
            if lost:
                self.end_lease(ref)
            else:
                self._renew(ref)
            stop = directory.read_stop()
        if news:
            self._changed(ref)
        if lost or ended:
            self._wake(ref)
        return stop

    def request_stop(self, ref: InstanceRef, reason: StopReason) -> None:
        """Record that an attempt is to stop, unless it was asked before; its agent hears of it at once."""
        directory = self.directory(ref)
        if directory.read_stop() is None:
            directory.write_stop(reason)
        self._wake(ref)

    def close(self) -> None:
        """Let no request wait any more: the service is about to end."""
        self._closing = True
        for ref in list(self._waiting):
            self._wake(ref)

    async def await_stop(self, ref: InstanceRef, *, timeout_s: float) -> StopReason | None:
        if timeout_s <= 0 or self._closing:
            return self.directory(ref).read_stop()
        waiter = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.setdefault(ref, []).append(waiter)
        try:
            # Looked at after the event is there: a stop in between sets it.
            stop = self.directory(ref).read_stop()
            if stop is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(waiter[1].wait(), timeout_s)
                stop = self.directory(ref).read_stop()
            return stop
        finally:
            self._waiting[ref].remove(waiter)
            if not self._waiting[ref]:
                del self._waiting[ref]

    def deliver(self, ref: InstanceRef, lines: bytes, *, job_name: str, offset: int) -> int:
        self._checked(ref, job_name)
        stream = self.spec(ref).log
        begin = self._log_begin(ref)
        if lines:
            self._logs.append(stream, lines, offset=begin + offset)
        return self._logs.received_bytes(stream) - begin

    def status(self, ref: InstanceRef) -> InstanceStatus:
        """Return what an attempt has reported; it runs as long as its lease lasts."""
        directory = self.directory(ref)
        launched, ended = directory.spec_file.exists(), directory.read_exit()
        return InstanceStatus(
            launched=launched,
            running=launched and ended is None and self.lease_left_s(ref) > 0,
            phases=directory.read_phases(),
            exit=ended,
            attempt=ref.attempt,
        )

    def lease_left_s(self, ref: InstanceRef) -> float:
        """Return for how long the lease of an attempt still lasts; not above 0 if it has ended."""
        try:
            renewed_s = (self.directory(ref).path / _LEASE_FILE).stat().st_mtime
        except FileNotFoundError:
            return 0.0
        return renewed_s + self._lease_s - time.time()

    def end_lease(self, ref: InstanceRef) -> None:
        """End the lease of an attempt whose processes are gone."""
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.directory(ref).path / _LEASE_FILE, (_ENDED_S, _ENDED_S))

    def _checked(self, ref: InstanceRef, job_name: str) -> InstanceDirectory:
        if self.spec(ref).job_name != job_name:
            raise UnknownInstance(f"job {ref.job_id} is not {job_name!r}, whose keys signed the request")
        directory = self.directory(ref)
        if directory.read_exit() is None and self.lease_left_s(ref) <= 0:
            raise UnknownInstance(f"the lease of attempt {ref.attempt} of job {job_name} has ended")
        return directory

    def _wake(self, ref: InstanceRef) -> None:
        """Let the request of an agent that waits for a stop be answered."""
        for loop, event in self._waiting.get(ref, ()):
            loop.call_soon_threadsafe(event.set)

    def _renew(self, ref: InstanceRef) -> None:
        (self.directory(ref).path / _LEASE_FILE).touch()

    def _log_begin(self, ref: InstanceRef) -> int:
        file = self.directory(ref).path / "log.json"
        with self._lock:
            found = read_json(file)
            if found is None:
                found = {"version": 1, "begin": self._logs.received_bytes(self.spec(ref).log)}
                write_json(file, found)
        return int(found["begin"])


def _exit(text: str) -> InstanceExit:
    try:
        return exit_from_json(json.loads(text))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
