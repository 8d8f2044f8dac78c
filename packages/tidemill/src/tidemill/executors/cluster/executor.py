"""Run instances on the machines of a cluster. This is the service's side: launches, leases, stops.

On each machine an agent (`tidemill.node`) fetches data from the service's S3, runs the instance as the local executor
does, and sends reports through a small signed API. `ClusterInstances` processes these reports.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tidemill.core.instances import InstanceRef, Isolation, ObjectReference
from tidemill.errors import LaunchError, MachinesBusy
from tidemill.executors.base import Capacity, EventFile, KnownInstance, LogSink, Publication, RelayedServer
from tidemill.executors.cluster.capacity import KnownCapacity
from tidemill.executors.cluster.instances import ClusterInstances
from tidemill.executors.cluster.lease_records import LeaseRecords
from tidemill.executors.cluster.lease_watch import LeaseWatch
from tidemill.executors.cluster.placement import AgentPlacement
from tidemill.executors.cluster.relay_client import bring
from tidemill.instance.assignment import AgentAssignment
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceStatus, StopReason

_LOOK_S = 1.0
_SECRET_BYTES = 32


class ClusterExecutor:
    """Runs instances through a placement. Implements `tidemill.executors.base.Executor`.

    Args:
        root: Directory of the records of instances.
        placement: Reserves machines, and starts and ends agents on them.
        logs: Stores the log lines of the instances.
        leases: Stores the leases of the instances for later starts of the service.
        service_url: Returns the URL at which the machines of the cluster reach the service.
        lease_s: Seconds without an answer of the service after which an agent ends its instance.
        isolation: The setting ``isolation`` for the machines. Default: ``auto``.

    Methods may be called from several threads; `changed` from one event loop.

    Raises:
        LaunchError: The cluster cannot be reached.
    """

    isolation = Isolation.MOUNT
    no_network = "the instances of a cluster share the networks of their machines"

    def __init__(
        self,
        root: Path,
        placement: AgentPlacement,
        *,
        logs: LogSink,
        leases: LeaseRecords,
        service_url: Callable[[], str],
        lease_s: float,
        isolation: str = "auto",
    ) -> None:
        root.mkdir(parents=True, mode=0o700, exist_ok=True)
        self._placement = placement
        self._capacity = KnownCapacity(placement.capacity)
        self._service_url = service_url
        self._isolation = isolation
        self._lock = threading.Lock()
        self._news: set[InstanceRef] = set()
        self._arrived: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.instances = ClusterInstances(root, logs=logs, leases=leases, lease_s=lease_s, changed=self._note)
        self._leases = LeaseWatch(self.instances.lease_end_s)
        placement.watch(self._lose)

    def capacity(self) -> Capacity:
        return self._capacity.get()

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        first = specs[0].ref
        newest = self._newest_attempt(first.job_id)
        if newest > first.attempt:
            raise LaunchError(f"attempt {first.attempt} of job {first.job_id} is over: attempt {newest} was launched")
        for spec in specs:
            _refuse_what_clusters_lack(spec)
        for older in list(self.instances.known(first.job_id)):
            if older.attempt < first.attempt:
                self.kill(older)
        if all(self.instances.knows(spec.ref) for spec in specs):
            return
        try:
            types = specs[0].instance_types or ("",) * len(specs[0].hosts)
            addresses = self._placement.reserve(first.job_id, first.attempt, types, title=specs[0].job_name)
        except MachinesBusy:
            raise  # without a release, so that the request keeps its place in the scheduler's queue
        except Exception:
            self._placement.release(first.job_id)
            raise
        try:
            secret = self._peer_secret(specs)
            missing = [spec for spec in specs if not self.instances.knows(spec.ref)]
            self._start([replace(spec, addresses=addresses, peer_secret=secret) for spec in missing])
        except Exception:
            self._placement.release(first.job_id)
            for spec in specs:
                self._leases.discard(spec.ref)
                self.instances.remove(spec.ref)
            raise

    def relaunch(self, ref: InstanceRef) -> None:
        # A service that died between record and start leaves a lease without an agent. When that lease ends, the job
        # starts its next attempt.
        if self.instances.knows(ref):
            self._leases.add(ref)

    def recover(self, *, finished: Callable[[str], bool]) -> list[KnownInstance]:
        found = []
        for job_id in self.instances.jobs():
            # There may be very many cleaned-up jobs, so nothing else is done for each of them.
            for ref in () if finished(job_id) else self.instances.known(job_id):
                known = self.instances.identify(ref)
                if known is not None:
                    self._leases.add(ref)
                    found.append(known)
        self.instances.adopt([known.ref for known in found])
        return found

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        return self.instances.status(ref)

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        if self.instances.runs(ref):
            self.instances.request_stop(ref, reason)

    def kill(self, ref: InstanceRef) -> None:
        if self.instances.runs(ref) and self._placement.kill(ref):
            self.instances.end_lease(ref)
            self._leases.discard(ref)
            self._note(ref)

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        self._arrived = loop, arrived
        deadline_s = loop.time() + timeout_s
        while True:
            arrived.clear()
            news = self._leases.ended()
            with self._lock:
                news |= self._news
                self._news.clear()
            left_s = deadline_s - loop.time()
            if news or left_s <= 0:
                self._arrived = None
                return news
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left_s, _LOOK_S)):
                    await arrived.wait()

    def server_address(self, ref: InstanceRef) -> RelayedServer | None:
        return self.instances.server(ref)

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        server = self.instances.server(ref)
        if server is None:
            raise LaunchError("the agent of the instance has not reported its address yet")
        bring(server, archive, name=name)

    def event_files(self, ref: InstanceRef) -> Sequence[EventFile]:
        """Return none: they are on another machine, and with a TensorBoardOutputConfig in S3 while the job runs."""
        return ()

    def open_event_file(self, ref: InstanceRef, name: str) -> int:
        raise FileNotFoundError(f"{name} of job {ref.job_id} is on another machine")

    def publication(self, ref: InstanceRef, name: str) -> Publication | None:
        """Return None: agents upload artifacts themselves."""
        return None

    def reap(self, job_id: str, *, keep_files: bool = False) -> bool:
        # The service keeps the reports in any case. The other files are on the instances' machines, whose agents end.
        refs = list(self.instances.known(job_id))
        if refs or self._placement.waits(job_id):
            self._placement.release(job_id)
            for ref in refs:
                self._leases.discard(ref)
            self.instances.end_job(job_id)
        return True

    def close(self) -> None:
        self.instances.close()
        self._capacity.close()
        self._placement.close()

    def _start(self, specs: Sequence[InstanceSpec]) -> None:
        assignments = {}
        for spec in specs:
            self.instances.add(spec)
            assignment = AgentAssignment.of(
                spec, service_url=self._service_url(), lease_s=self.instances.lease_s, isolation=self._isolation
            )
            assignments[spec.ref] = assignment.to_bytes()
        self._placement.start(assignments)
        for spec in specs:
            self._leases.add(spec.ref)

    def _lose(self, job_id: str, attempt: int, reason: str) -> None:
        """Count the instances of an attempt as lost that have not reported their end: their processes are gone."""
        for ref in list(self.instances.known(job_id)):
            if ref.attempt == attempt and self.instances.lose(ref, reason):
                self._leases.discard(ref)
                self._note(ref)

    def _peer_secret(self, specs: Sequence[InstanceSpec]) -> str:
        """Return the secret of the attempt's started instances, or a new one if none was started."""
        for spec in specs:
            if self.instances.knows(spec.ref):
                return self.instances.spec(spec.ref).peer_secret
        return secrets.token_hex(_SECRET_BYTES)

    def _note(self, ref: InstanceRef) -> None:
        with self._lock:
            self._news.add(ref)
        waiting = self._arrived
        if waiting is not None:
            with contextlib.suppress(RuntimeError):  # the loop has just been closed
                waiting[0].call_soon_threadsafe(waiting[1].set)

    def _newest_attempt(self, job_id: str) -> int:
        return max((ref.attempt for ref in self.instances.known(job_id)), default=0)


def _refuse_what_clusters_lack(spec: InstanceSpec) -> None:
    for channel in spec.channels:
        if "/" in channel.name or "\0" in channel.name:
            raise LaunchError(f"channel name {channel.name!r} cannot name a file")
