"""Drive each transform job from its creation to its end, with one task per job.

All state is in the store, in the instances' files and in the results. After kill -9 the next service starts a task for
each job that has not ended, finds its servers running, and continues with the objects that have no result yet.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog

from tidemill.control.denials import Denials, denial_lines, end_rights, with_denials
from tidemill.control.full_disk import delayed_by_full_disk
from tidemill.control.job_archive import JobArchive
from tidemill.control.jobs import TRANSFORM, Jobs
from tidemill.control.plan import DataMissing, ServerPlanner
from tidemill.control.server_keys import ServerKeys
from tidemill.control.slots import Slots
from tidemill.control.transform.model_server import ModelServer
from tidemill.control.transform.run import Transformed
from tidemill.control.transform.runs import TransformRuns
from tidemill.control.work_queue import JobDriver
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.instances import InstanceRef
from tidemill.core.job_scope import JobScope
from tidemill.core.transform import JobStatus, TransformJob
from tidemill.errors import LaunchError, MachinesBusy
from tidemill.executors.base import Executor
from tidemill.instance.status import InstanceStatus, StopReason
from tidemill.store.records.base import RecordStore, Transaction

_log = structlog.get_logger("tidemill.transform")
_LOOK_S = 5.0
_BUSY_S = 10.0
_PING_EVERY_S = 0.1
_HEALTHY_WITHIN_S = 15 * 60
_END_WITHIN_S = 60.0
_FAILURE_LIMIT = 1024

_T = TypeVar("_T")


class _Failed(Exception):
    """The job cannot continue; the message becomes its FailureReason."""


class _StopRequested(Exception):
    """The user asked for a stop."""


class TransformDriver(JobDriver[TransformJob]):
    """Runs the accepted transform jobs.

    Args:
        runs: Prepares the runs, once the instances are launched.
        planner: Creates the specs of instances.
        slots: Limits how many instances run at the same time; shared with training jobs.
        archive: Marks the jobs that are cleaned up.
        keys: Issues the keys of the jobs' servers.
        denials: Keeps what was denied to these keys.
    """

    def __init__(
        self,
        records: RecordStore,
        executor: Executor,
        runs: TransformRuns,
        *,
        planner: ServerPlanner,
        slots: Slots,
        archive: JobArchive,
        keys: ServerKeys,
        denials: Denials,
        clock: Clock,
    ) -> None:
        super().__init__(Jobs(records, TRANSFORM))
        self._transform_runs = runs
        self._executor = executor
        self._planner = planner
        self._slots = slots
        self._archive = archive
        self._keys = keys
        self._denials = denials
        self._clock = clock

    async def _fail(self, job: TransformJob, reason: str) -> None:
        await self._end(self._job(job.name), JobStatus.FAILED, reason=reason)

    async def _run(self, job: TransformJob) -> None:
        status, reason = JobStatus.COMPLETED, ""
        try:
            await self._serve_and_transform(job)
        except _StopRequested:
            status = JobStatus.STOPPED
        except (DataMissing, _Failed) as error:
            status, reason = JobStatus.FAILED, str(error)
        except LaunchError as error:
            status, reason = JobStatus.FAILED, f"InternalServerError: {error}"
        await self._end(self._job(job.name), status, reason=reason)

    async def _serve_and_transform(self, job: TransformJob) -> None:
        if job.decided:
            return
        self._queue.listen(job.job_id, job.name)
        count = len(job.log_streams)
        if self._runs(job):
            self._slots.force(self._holder(job.name), count)
        elif not await self._take_slots(
            self._slots,
            job.name,
            count,
            stopped=lambda: self._stopping(job.name),
        ):
            raise _StopRequested
        try:
            await self._launch_when_free(job)
            await self._transform(job)
        finally:
            self._slots.release(self._holder(job.name))

    async def _launch_when_free(self, job: TransformJob) -> None:
        """Launch the servers; wait while all suitable machines are busy.

        Raises:
            _StopRequested: The job was stopped meanwhile.
        """
        while True:
            try:
                await self._launch(job)
                return
            except MachinesBusy as busy:
                _log.info("transform.waits_for_machines", name=job.name, reason=str(busy))
            await self._queue.wait(job.name, timeout_s=_BUSY_S)
            if self._stopping(job.name):
                raise _StopRequested

    async def _launch(self, job: TransformJob) -> None:
        refs = _refs(job)
        if self._runs(job):
            for ref in refs:
                self._executor.relaunch(ref)
            return
        with delayed_by_full_disk(f"transform job {job.name}"):
            environment = {**job.container.get("Environment", {}), **job.request.get("Environment", {})}
            scope = JobScope.of_transform(job.request)
            variables = await self._keys.issue(job.job_id, model=job.model, environment=environment, scope=scope)
            specs = await asyncio.to_thread(
                lambda: [self._planner.plan_transform(job, ref.instance_index, variables=variables) for ref in refs]
            )
            await asyncio.to_thread(self._executor.launch, specs)
        faults.point("control.transform.launched")

    async def _transform(self, job: TransformJob) -> None:
        """Transform the objects once all servers answer; meanwhile watch for a stop request and for ended servers."""
        async with self._transform_runs.opened(job, _refs(job)) as run:
            await self._watched(job, self._wait_until_healthy(job, run.servers))
            await self._started(job)
            _raise_if_incomplete(await self._watched(job, run.run()), job)

    async def _wait_until_healthy(self, job: TransformJob, servers: Sequence[ModelServer]) -> None:
        """Wait until every server has loaded the model."""
        deadline_s = self._clock.monotonic_s() + _HEALTHY_WITHIN_S
        waiting = list(servers)
        while waiting:
            waiting = [each for each in waiting if not (self._serves(each.ref) and await each.healthy())]
            if waiting and self._clock.monotonic_s() > deadline_s:
                raise _Failed(f"The server did not answer /ping within {_HEALTHY_WITHIN_S} s; see the job's log")
            if waiting:
                await asyncio.sleep(_PING_EVERY_S)

    def _serves(self, ref: InstanceRef) -> bool:
        phases = self._executor.observe(ref).phases
        return bool(phases) and phases[-1].status == "Serving"

    async def _watched(self, job: TransformJob, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of ``work``; cancel it and raise if the job is stopped or an instance ends first."""
        task = asyncio.ensure_future(work)
        try:
            while not task.done():
                if self._stopping(job.name):
                    raise _StopRequested
                await self._keys.renew(job.job_id)
                for ref in _refs(job):
                    _raise_if_ended(await asyncio.to_thread(self._executor.observe, ref))
                await self._queue.wait(job.name, task, timeout_s=_LOOK_S)
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _stopping(self, name: str) -> bool:
        return self._job(name).status is JobStatus.STOPPING

    def _runs(self, job: TransformJob) -> bool:
        return all(self._executor.observe(ref).launched for ref in _refs(job))

    async def _started(self, job: TransformJob) -> None:
        at_ms = self._clock.now_ms()
        await self._update(job.name, lambda now: now if now.started_ms else replace(now, started_ms=at_ms))

    async def _end(self, job: TransformJob, status: JobStatus, *, reason: str) -> None:
        """Store the decision, end the servers, commit the job's end, then clean up.

        The decision is stored first: if the service is killed after it ended the servers, the next service must not
        take the ended servers for a failure. A job never leaves a terminal state.
        """
        if not job.status.terminal:
            denied = self._denials.of(job.job_id)
            reason = with_denials(reason, denied, most=_FAILURE_LIMIT)
            job = await self._update(job.name, lambda now: now.decide(status, failure_reason=reason))
            await self._end_servers(job)
            await asyncio.to_thread(self._transform_runs.log, job, denial_lines(denied))
            at_ms = self._clock.now_ms()

            def revoke(transaction: Transaction) -> None:
                end_rights(transaction, job.job_id)

            faults.point("control.transform.end.before")
            job = await self._update(job.name, lambda now: now.end(at_ms=at_ms), also=revoke)
            self._announce(job)
            _log.info("transform.ended", name=job.name, status=str(job.status), reason=job.failure_reason)
        faults.point("control.transform.end.after")
        await asyncio.to_thread(self.clean_up, job)

    async def _end_servers(self, job: TransformJob) -> None:
        """Ask the servers to end, and wait until they have, so that the log is complete."""
        deadline_s = self._clock.monotonic_s() + _END_WITHIN_S
        for ref in _refs(job):
            state = await asyncio.to_thread(self._executor.observe, ref)
            if state.running:
                await asyncio.to_thread(self._executor.stop, ref, reason=StopReason.STOPPED)
        for ref in _refs(job):
            while (await asyncio.to_thread(self._executor.observe, ref)).running:
                if self._clock.monotonic_s() > deadline_s:
                    break  # cleaning up the job kills the servers
                await self._queue.wait(job.name, timeout_s=_PING_EVERY_S)

    def clean_up(self, job: TransformJob) -> None:
        """Remove the files of the ended job, keep the record needed to repeat it, and mark the job as finished.

        A job whose files could not be removed is not marked, so that the next start of the service tries again.

        Args:
            job: The job.
        """
        states = [self._executor.observe(ref) for ref in _refs(job)]
        removed = self._executor.reap(job.job_id)
        if any(state.launched for state in states):
            ended = next((state.exit for state in states if state.exit is not None), None)
            record = {"name": job.name, "status": str(job.status), "request": job.request, "model": job.model}
            self._archive.keep(job.job_id, {**record, **(ended.record if ended else {})})
            if removed:
                self._archive.finish(job.job_id, name=job.name, ended_ms=job.ended_ms)


def _refs(job: TransformJob) -> list[InstanceRef]:
    return [InstanceRef(job.job_id, index) for index in range(len(job.log_streams))]


def _raise_if_incomplete(transformed: Transformed, job: TransformJob) -> None:
    """Raise unless every object has a result."""
    if not transformed.failed:
        return
    others = transformed.failed - 1
    also = f" ({others} more objects have no result; see the log stream {job.data_log_stream})" if others else ""
    room = _FAILURE_LIMIT - len(also)
    raise _Failed(transformed.first_failure[:room] + also)


def _raise_if_ended(state: InstanceStatus) -> None:
    if state.exit is not None:
        raise _Failed(state.exit.failure or "InternalServerError: the model's server ended")
    if state.loss:
        raise _Failed(state.loss)
