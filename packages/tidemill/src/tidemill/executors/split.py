"""Two executors as one: scripts run on a cluster, model servers there or on the service's machine."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill.core.instances import InstanceRef, Isolation, ObjectReference
from tidemill.executors.base import Capacity, EventFile, Executor, KnownInstance, Publication, ServerAddress
from tidemill.executors.cluster.executor import ClusterExecutor
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceStatus, StopReason


class SplitExecutor:
    """Passes each call to the executor that runs the instance. Implements `tidemill.executors.base.Executor`.

    Args:
        local: Runs what the cluster does not, and what an earlier service started here.
        cluster: Runs training and processing jobs.
        servers: Whether the cluster also runs the model servers of endpoints and transform jobs, except serverless
            ones. Default: false.
    """

    def __init__(self, local: Executor, cluster: ClusterExecutor, *, servers: bool = False) -> None:
        self._local = local
        self._cluster = cluster
        self._servers = servers

    @property
    def isolation(self) -> Isolation:
        return self._cluster.isolation

    @property
    def no_network(self) -> str:
        return self._cluster.no_network

    def capacity(self) -> Capacity:
        # The cluster's scheduler assigns its GPUs, so this service must not count them.
        return replace(self._cluster.capacity(), gpus=0)

    def launch(self, specs: Sequence[InstanceSpec]) -> None:
        first = specs[0]
        # A serverless variant has no instance type. It starts while a request waits: too late to queue for a machine.
        wanted = first.runs_a_script or (self._servers and bool(first.instance_types))
        cluster = wanted and not self._local.observe(first.ref).launched
        (self._cluster if cluster else self._local).launch(specs)

    def relaunch(self, ref: InstanceRef) -> None:
        self._of(ref).relaunch(ref)

    def recover(self, *, finished: Callable[[str], bool]) -> list[KnownInstance]:
        return [*self._local.recover(finished=finished), *self._cluster.recover(finished=finished)]

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        return self._of(ref).observe(ref)

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        self._of(ref).stop(ref, reason=reason)

    def kill(self, ref: InstanceRef) -> None:
        self._of(ref).kill(ref)

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        """Wait for either executor. Reports that come too late for this call are returned by the next one.

        Returns:
            Attempts of both executors.
        """
        waits = {asyncio.create_task(each.changed(timeout_s=timeout_s)) for each in (self._local, self._cluster)}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not any(task.result() for task in done):
                await asyncio.wait(waits)
            # Include the other executor's results if they are ready, because it returns each result only once.
            return set().union(*(task.result() for task in waits if task.done()))
        finally:
            for task in waits:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*waits, return_exceptions=True)

    def server_address(self, ref: InstanceRef) -> ServerAddress | None:
        return self._of(ref).server_address(ref)

    def deliver(self, ref: InstanceRef, archive: ObjectReference, *, name: str) -> None:
        self._of(ref).deliver(ref, archive, name=name)

    def event_files(self, ref: InstanceRef) -> Sequence[EventFile]:
        return self._of(ref).event_files(ref)

    def open_event_file(self, ref: InstanceRef, name: str) -> int:
        return self._of(ref).open_event_file(ref, name)

    def publication(self, ref: InstanceRef, name: str) -> Publication | None:
        return self._of(ref).publication(ref, name)

    def reap(self, job_id: str, *, keep_files: bool = False) -> bool:
        ended = self._cluster.reap(job_id, keep_files=keep_files)
        return self._local.reap(job_id, keep_files=keep_files) and ended

    def _of(self, ref: InstanceRef) -> Executor:
        return self._cluster if self._cluster.instances.knows(ref) else self._local
