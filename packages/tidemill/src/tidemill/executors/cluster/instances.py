"""The service's records of the instances of a cluster: the reports of their agents, and their leases.

An agent renews the lease of its instance with every report. An instance whose lease has ended counts as lost: by then
its agent has ended it, even if the agent could not reach the service. So two attempts of an instance never run at the
same time.

A later start of the service does not know when an agent last reached an earlier one. It knows which start last renewed
the lease, because the first renewal by each start is stored before it is answered, and for how long agents could reach
each start since then. A lease ends when these times add up to its length. All of them are later than the last renewal,
so by then the agent, which counts from an earlier time, has ended the instance. Time without a service does not count,
because no instance could report, and because the machines have no common clock. Nothing depends on the time of day,
which may differ after a restart. The end of a lease is stored before the job can start its next attempt, so an instance
that was lost stays lost.
"""

import asyncio
import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from tidemill._shared.trees import remove_tree
from tidemill.core.clock import SystemClock
from tidemill.core.files import make_directory, read_json, write_json
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.errors import ServiceUnavailable
from tidemill.executors.base import KnownInstance, LogSink, RelayedServer
from tidemill.executors.cluster.lease_records import LeaseRecords
from tidemill.executors.cluster.reports import InstanceReports, UnknownInstance
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.lease import StoredLease
from tidemill.instance.records import exit_from_json, spec_from_json, spec_to_json
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceExit, InstanceOutcome, InstanceStatus, Phase, RelayReport, StopReason

_log = structlog.get_logger("tidemill.cluster")
_LEASE_FILE = "lease"
_ENDED_S = 1.0
_STEP_S = 1.0
"""How often the time is stored for which agents could reach this start, in seconds.

A start that is killed sooner than this after its beginning does not count.
"""


@dataclass(slots=True)
class _Attempt:
    """Cached content of an attempt's files, so that a heartbeat does not read files.

    Attributes:
        session: Name of the session of its keys.
        lease_file: File whose modification time is `_ENDED_S` if the lease has ended.
        phases: Phases that the agent has reported.
        ended: Whether the agent has reported a result.
        stop: Why the instance is to stop, if it is.
        lease_s: Length of the lease in seconds, as the agent knows it.
        silent_s: See `StoredLease.silent_s`.
        until_s: End of the lease by the monotonic clock, in seconds; None if this start has not renewed it.
        renewal_is_stored: Whether it is stored that this start has renewed the lease.
        log_begin: Size of the log stream before the attempt, in bytes; None if not read yet.
        server: Address of its model server; None until the agent has reported it.
    """

    job_name: str
    session: str
    log: StreamName
    lease_file: str
    phases: tuple[Phase, ...]
    ended: bool
    stop: StopReason | None
    lease_s: float
    silent_s: float
    until_s: float | None
    renewal_is_stored: bool = False
    log_begin: int | None = None
    server: RelayedServer | None = None


class ClusterInstances(InstanceReports):
    """Records of instances below ``root``. May be used from several threads.

    Args:
        root: Directory of the records, on the service's machine.
        logs: Stores the log lines.
        leases: Stores the leases for later starts of the service.
        lease_s: Length of the leases of instances that are launched from now on, in seconds.
        changed: Called with each instance whose status has changed.
        now_s: Returns the monotonic time in seconds.
    """

    def __init__(
        self,
        root: Path,
        *,
        logs: LogSink,
        leases: LeaseRecords,
        lease_s: float,
        changed: Callable[[InstanceRef], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._logs = logs
        self._leases = leases
        self._silent = dict(leases.begin())  # the leases that this start has not renewed
        self._lease_s = lease_s
        self._changed = changed
        self._now_s = now_s
        self._attempts: dict[InstanceRef, _Attempt] = {}
        self._lock = threading.Lock()
        self._lease_lock = threading.Lock()  # never held while files are read or written: the event loop takes it
        self._waiting: dict[InstanceRef, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._closing = False
        self._reachable_s = math.inf

    @property
    def lease_s(self) -> float:
        return self._lease_s

    def begin_leases(self) -> None:
        """Begin the leases of all instances, because agents can reach the service from now on. No lease ends before."""
        self._reachable_s = self._now_s()

    def adopt(self, refs: Collection[InstanceRef]) -> None:
        """Store the leases that are not stored yet, and remove stored leases without an instance.

        Args:
            refs: The instances of all jobs that have not ended.
        """
        # A release that did not store leases launched them, or the database was restored from a backup.
        missing = [ref for ref in refs if ref not in self._silent and self._may_run(ref)]
        if missing:
            self._leases.adopt(missing, lease_s=self._lease_s)
            self._silent |= dict.fromkeys(missing, StoredLease(self._lease_s, 0.0))
        gone = self._silent.keys() - set(refs)
        if gone:
            self._leases.remove(gone)
            for ref in gone:
                self._silent.pop(ref, None)

    async def keep_time(self) -> None:
        """Store each second for how long agents can reach this start, while instances have not reported to it.

        Never returns. Cancel it before the service ends, which stores the time once more.
        """
        try:
            while True:
                await asyncio.sleep(_STEP_S)
                await self.store_time()
        finally:
            await self.store_time()

    async def store_time(self) -> None:
        """Store for how long agents could reach this start until now, if a later start may need to know."""
        reachable_s = self._now_s() - self._reachable_s
        if reachable_s <= 0 or not any(reachable_s < lease.lease_s for lease in list(self._silent.values())):
            return
        try:
            await self._leases.store_reachable(reachable_s)
        except ServiceUnavailable as error:
            _log.warning("leases.time_not_stored", reason=error.message)

    def knows(self, ref: InstanceRef) -> bool:
        """Return whether an attempt was launched and not removed."""
        return ref in self._attempts or self._directory(ref).spec_file.exists()

    def known(self, job_id: str) -> Iterator[InstanceRef]:
        """Yield every attempt of a job that was launched and not removed.

        Args:
            job_id: Hexadecimal id of the job.

        Yields:
            Attempts, in no order.
        """
        for directory in InstanceDirectory.all_below(self._root, job_id):
            yield directory.ref

    def jobs(self) -> Iterator[str]:
        """Yield the job id of every attempt that was launched and not removed."""
        with contextlib.suppress(FileNotFoundError), os.scandir(self._root / "jobs") as jobs:
            for job in jobs:
                yield job.name

    def spec(self, ref: InstanceRef) -> InstanceSpec:
        """Return the spec of an attempt, without its inputs.

        Raises:
            UnknownInstance: There is no such attempt.
        """
        value = read_json(self._directory(ref).spec_file)
        if value is None:
            raise UnknownInstance(f"attempt {ref.attempt} of instance {ref.instance_index} of job {ref.job_id} is over")
        return spec_from_json(value)

    def add(self, spec: InstanceSpec) -> None:
        """Record an attempt that is about to start, and begin its lease.

        Args:
            spec: What the agent has to run.
        """
        directory = self._directory(spec.ref)
        make_directory(directory.path, mode=0o700)
        (directory.path / _LEASE_FILE).touch()
        self._leases.add(spec.ref, lease_s=self._lease_s)
        self._logs.create(spec.log)
        write_json(directory.spec_file, {"version": 1, **spec_to_json(spec)})
        attempt = self._attempt(spec.ref)
        attempt.renewal_is_stored = True
        if self._reachable_s < math.inf:
            attempt.until_s = self._now_s() + attempt.lease_s

    def remove(self, ref: InstanceRef) -> None:
        """Remove the record of an attempt that never ran."""
        self._attempts.pop(ref, None)
        path = self._directory(ref).path
        if path.exists():
            remove_tree(path)
            self._leases.remove([ref])

    def end_job(self, job_id: str) -> None:
        """End the leases of all attempts of a job, and drop them from memory. Their files stay.

        Args:
            job_id: Hexadecimal id of the job.
        """
        refs = list(self.known(job_id))
        self._end_leases(refs)
        for ref in refs:
            self._attempts.pop(ref, None)

    def identify(self, ref: InstanceRef) -> KnownInstance | None:
        """Return the attempt with its job; None if its record cannot be read."""
        with contextlib.suppress(ValueError, KeyError, TypeError, UnknownInstance):
            spec = self.spec(ref)
            return KnownInstance(ref=ref, kind=spec.kind, job_name=spec.job_name)
        return None

    async def renew(self, ref: InstanceRef, *, session: str) -> StopReason | None:
        attempt = self._checked(ref, session)
        self._renew(ref, attempt)
        if not attempt.renewal_is_stored:
            # The agent counts on a renewal as soon as it is answered, so a later start must know of it.
            await self._leases.renew(ref)
            attempt.renewal_is_stored = True
            self._silent.pop(ref, None)
            self._checked(ref, session)
        return attempt.stop

    def report(
        self,
        ref: InstanceRef,
        *,
        session: str,
        phases: Sequence[Phase],
        ended: str,
        lost: bool,
        relay: RelayReport | None = None,
    ) -> StopReason | None:
        result = _exit(ended) if ended else None
        with self._lock:
            attempt, directory = self._checked(ref, session), self._directory(ref)
            first = result is not None and not attempt.ended
            news = lost or first or relay is not None
            if relay is not None:
                directory.write_relay(relay)
                attempt.server = _server_of(self.spec(ref), relay)
            if phases and tuple(phases) != attempt.phases:
                directory.write_phases(phases)
                attempt.phases = tuple(phases)
                news = True
            if result is not None and first:
                directory.write_exit(result)
                attempt.ended = True
            if lost:
                self.end_lease(ref)
        if news:
            self._changed(ref)
        if lost or ended:
            self._wake(ref)
        return attempt.stop

    def request_stop(self, ref: InstanceRef, reason: StopReason) -> None:
        """Record that an attempt is to stop, unless a stop is recorded; answer its agent's waiting request at once.

        Args:
            reason: Why it has to stop.
        """
        with self._lock:
            attempt = self._attempt(ref)
            if attempt.stop is None:
                self._directory(ref).write_stop(reason)
                attempt.stop = reason
        self._wake(ref)

    def close(self) -> None:
        """Answer all waiting requests, because the service is about to end."""
        self._closing = True
        for ref in list(self._waiting):
            self._wake(ref)

    async def await_stop(self, ref: InstanceRef, *, timeout_s: float) -> StopReason | None:
        if timeout_s <= 0 or self._closing:
            return self._stop(ref)
        waiter = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.setdefault(ref, []).append(waiter)
        try:
            # Check after the event is registered, so that a stop in between sets the event.
            if self._stop(ref) is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(waiter[1].wait(), timeout_s)
            return self._stop(ref)
        finally:
            self._waiting[ref].remove(waiter)
            if not self._waiting[ref]:
                del self._waiting[ref]

    def deliver(self, ref: InstanceRef, lines: bytes, *, session: str, offset: int) -> int:
        attempt = self._checked(ref, session)
        begin = self._log_begin(ref, attempt)
        if lines:
            self._logs.append(attempt.log, lines, offset=begin + offset)
        return self._logs.received_bytes(attempt.log) - begin

    def deliver_samples(self, ref: InstanceRef, lines: bytes, *, session: str) -> None:
        self._logs.add_samples(self._checked(ref, session).log, lines)

    def status(self, ref: InstanceRef) -> InstanceStatus:
        """Return the reported status of an attempt. It counts as running until it reports its end or its lease ends."""
        try:
            attempt = self._attempt(ref)
        except UnknownInstance:
            return InstanceStatus(launched=False, running=False, phases=(), exit=None, attempt=ref.attempt)
        running = self._runs(attempt)
        if not running and not attempt.ended:
            self.end_lease(ref)
        return InstanceStatus(
            launched=True,
            running=running,
            phases=attempt.phases,
            exit=self._directory(ref).read_exit() if attempt.ended else None,
            attempt=ref.attempt,
        )

    def server(self, ref: InstanceRef) -> RelayedServer | None:
        """Return the address of an attempt's model server; None until its agent has reported it."""
        try:
            return self._attempt(ref).server
        except UnknownInstance:
            return None

    def runs(self, ref: InstanceRef) -> bool:
        """Return whether an attempt has a lease and no result. Cheaper than `status`."""
        try:
            return self._runs(self._attempt(ref))
        except UnknownInstance:
            return False

    def lease_end_s(self, ref: InstanceRef) -> float:
        """Return a time, by the monotonic clock in seconds, before which an attempt's lease does not end.

        The time is the end of the lease as far as it is known, and 0 if the attempt is over.
        """
        try:
            attempt = self._attempt(ref)
        except UnknownInstance:
            return 0.0
        if attempt.ended:
            return 0.0
        if attempt.until_s is None and self._reachable_s == math.inf:
            return self._now_s() + max(_STEP_S, attempt.lease_s - attempt.silent_s)
        return self._end_s(attempt)

    def lose(self, ref: InstanceRef, reason: str) -> bool:
        """Record that an attempt was lost, because its processes have ended without a report, and end its lease.

        Args:
            reason: The FailureReason if the job does not start again.

        Returns:
            Whether the attempt counted as running until now.
        """
        with self._lock:
            if not self.runs(ref):
                return False
            self.end_lease(ref)  # first: it fails if another service leads, which reads the same files
            ended = InstanceExit(
                outcome=InstanceOutcome.FAILED, failure=reason, ended_ms=SystemClock().now_ms(), lost=True
            )
            self._directory(ref).write_exit(ended)
            self._attempt(ref).ended = True
        self._wake(ref)
        return True

    def end_lease(self, ref: InstanceRef) -> None:
        """End the lease of an attempt whose processes are gone, for later services, too."""
        self._end_leases([ref])

    def _end_leases(self, refs: Sequence[InstanceRef]) -> None:
        attempts = {}
        for ref in refs:
            with contextlib.suppress(UnknownInstance):
                attempt = self._attempt(ref)
                if attempt.until_s != 0.0:
                    attempts[ref] = attempt
        if not attempts:
            return
        # Only the leading service can write to the database. So a service that hung, and does not know yet that another
        # one leads, fails here, before it marks files that the other one reads.
        self._leases.remove(attempts.keys())
        for ref, attempt in attempts.items():
            with self._lease_lock, contextlib.suppress(FileNotFoundError):
                attempt.until_s = 0.0
                os.utime(attempt.lease_file, (_ENDED_S, _ENDED_S))
            self._silent.pop(ref, None)

    def _directory(self, ref: InstanceRef) -> InstanceDirectory:
        return InstanceDirectory.of(self._root, ref)

    def _attempt(self, ref: InstanceRef) -> _Attempt:
        """Return the cached state of an attempt; read it from the files if it is not cached.

        Raises:
            UnknownInstance: There is no such attempt.
        """
        found = self._attempts.get(ref)
        return found if found is not None else self._attempts.setdefault(ref, self._read(ref))

    def _read(self, ref: InstanceRef) -> _Attempt:
        spec, directory = self.spec(ref), self._directory(ref)
        lease_file = directory.path / _LEASE_FILE
        try:
            has_ended = lease_file.stat().st_mtime <= _ENDED_S
        except FileNotFoundError:
            has_ended = True
        lease = self._silent.get(ref, StoredLease(self._lease_s, 0.0))
        return _Attempt(
            job_name=spec.job_name,
            session=spec.session,
            log=spec.log,
            lease_file=str(lease_file),
            phases=directory.read_phases(),
            ended=directory.read_exit() is not None,
            stop=directory.read_stop(),
            lease_s=lease.lease_s,
            silent_s=lease.silent_s,
            until_s=0.0 if has_ended else None,
            server=_server_of(spec, directory.read_relay()),
        )

    def _checked(self, ref: InstanceRef, session: str) -> _Attempt:
        attempt = self._attempt(ref)
        if attempt.session != session:
            raise UnknownInstance(f"job {ref.job_id} is not that of {session!r}, whose keys signed the request")
        if not attempt.ended and not self._runs(attempt):
            raise _lease_over(ref, attempt)
        return attempt

    def _runs(self, attempt: _Attempt) -> bool:
        return not attempt.ended and self._end_s(attempt) > self._now_s()

    def _end_s(self, attempt: _Attempt) -> float:
        if attempt.until_s is not None:
            return attempt.until_s
        return self._reachable_s + attempt.lease_s - attempt.silent_s

    def _may_run(self, ref: InstanceRef) -> bool:
        """Return whether no end of an attempt is recorded, or its record cannot be read."""
        with contextlib.suppress(ValueError, KeyError, TypeError, UnknownInstance):
            attempt = self._attempt(ref)
            return attempt.until_s is None and not attempt.ended
        return True

    def _stop(self, ref: InstanceRef) -> StopReason | None:
        found = self._attempts.get(ref)
        return found.stop if found is not None else None

    def _wake(self, ref: InstanceRef) -> None:
        """Wake the requests of an agent that wait for a stop, so that they are answered."""
        for loop, event in self._waiting.get(ref, ()):
            loop.call_soon_threadsafe(event.set)

    def _renew(self, ref: InstanceRef, attempt: _Attempt) -> None:
        with self._lease_lock:
            if not attempt.ended and not self._runs(attempt):
                raise _lease_over(ref, attempt)
            attempt.until_s = self._now_s() + attempt.lease_s

    def _log_begin(self, ref: InstanceRef, attempt: _Attempt) -> int:
        if attempt.log_begin is None:
            file = self._directory(ref).path / "log.json"
            with self._lock:
                found = read_json(file)
                if found is None:
                    found = {"version": 1, "begin": self._logs.received_bytes(attempt.log)}
                    write_json(file, found)
            attempt.log_begin = int(found["begin"])
        return attempt.log_begin


def _server_of(spec: InstanceSpec, relay: RelayReport | None) -> RelayedServer | None:
    if relay is None:
        return None
    host = spec.addresses[spec.ref.instance_index]
    return RelayedServer(host=host, port=relay.port, certificate=relay.certificate, secret=spec.peer_secret)


def _lease_over(ref: InstanceRef, attempt: _Attempt) -> UnknownInstance:
    return UnknownInstance(f"the lease of attempt {ref.attempt} of job {attempt.job_name} has ended")


def _exit(text: str) -> InstanceExit:
    try:
        return exit_from_json(json.loads(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
