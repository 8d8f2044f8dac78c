"""Drive each training or processing job from its creation to its end, with one task per job.

A task repeats three steps: observe the instances, decide what to do next, commit the result. All state is in the store
and in the files of the instances, never in the task: after kill -9 the next service starts a task for each job that has
not ended, and continues from the stored state. Any step may therefore run twice, so every step is idempotent.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from tidemill.control.credentials import Credentials
from tidemill.control.denials import Denials, denial_lines, end_rights, with_denials
from tidemill.control.full_disk import delayed_by_full_disk
from tidemill.control.jobs import Jobs, S
from tidemill.control.plan import DataMissing
from tidemill.control.slots import Slots
from tidemill.control.training.final_metrics import FoundMetrics
from tidemill.control.training.gang import Gang
from tidemill.control.training.plan import JobPlanner, instances_of
from tidemill.control.training.publish import ArtifactLost, Publisher
from tidemill.control.work_queue import JobDriver
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.instances import InstanceRef
from tidemill.core.retries import (
    attempts_allowed,
    pause_before_restart_s,
    run_time_left_s,
    wait_time_left_s,
)
from tidemill.core.training import SecondaryStatus, TrainingJob, Transition
from tidemill.errors import CapacityError, LaunchError, MachinesBusy
from tidemill.executors.base import Executor
from tidemill.instance.status import InstanceExit, InstanceOutcome, InstanceStatus, Phase, StopReason
from tidemill.store.records.base import Transaction

_log = structlog.get_logger("tidemill.training")
_LOOK_S = 60.0  # reports and stops wake a job; polling finds other changes, e.g. damaged records
_BUSY_S = 10.0
_LAUNCHES_AT_ONCE = 4  # fewer than the threads of asyncio.to_thread, so that reports of agents find a free one
_KEY_MARGIN_S = 3600.0
_FAILURE_LIMIT = 1024
_OURS = "InternalServerError"
_NO_CAPACITY = (
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type"
)

_OUTCOMES: Mapping[InstanceOutcome, tuple[SecondaryStatus, str]] = {
    InstanceOutcome.COMPLETED: (SecondaryStatus.COMPLETED, "completed"),
    InstanceOutcome.FAILED: (SecondaryStatus.FAILED, "failed"),
    InstanceOutcome.STOPPED: (SecondaryStatus.STOPPED, "stopped"),
    InstanceOutcome.MAX_RUNTIME: (
        SecondaryStatus.MAX_RUNTIME_EXCEEDED,
        "reached MaxRuntimeInSeconds and was stopped",
    ),
}


class TrainingDriver(JobDriver[S]):
    """Runs the accepted jobs of one kind, training or processing jobs.

    Args:
        planner: Creates the specs of instances.
        publisher: Stores the artifacts of ended jobs in S3.
        credentials: Issues the keys of a job.
        denials: Keeps what was denied to the keys of jobs.
        slots: Limits how many instances run at the same time.
        service_variables: Environment variables that point a job at this service.
    """

    def __init__(
        self,
        jobs: Jobs[S],
        executor: Executor,
        *,
        planner: JobPlanner[S],
        publisher: Publisher,
        credentials: Credentials,
        denials: Denials,
        slots: Slots,
        service_variables: Mapping[str, str],
        clock: Clock,
    ) -> None:
        super().__init__(jobs)
        self._title = jobs.kind.title
        self._executor = executor
        self._planner = planner
        self._publisher = publisher
        self._credentials = credentials
        self._denials = denials
        self._slots = slots
        self._service_variables = service_variables
        self._clock = clock
        self._launching = asyncio.Semaphore(_LAUNCHES_AT_ONCE)

    def _runs(self, job: S) -> bool:
        return any(self._launched(ref) for ref in instances_of(job))

    async def _fail(self, job: S, reason: str) -> None:
        present = self._jobs.find(job.name)
        if present is not None and present.job_id == job.job_id:  # not deleted, and the name used again
            await self._end(present, InstanceOutcome.FAILED, failure=reason)

    async def _run(self, job: S) -> None:
        refs = instances_of(job)
        self._queue.listen(job.job_id, job.name)
        try:
            gpus = self._planner.gpus_of(job.run_request)
        except DataMissing as error:
            await self._end(job, InstanceOutcome.FAILED, failure=str(error))
            return
        if any(self._launched(ref) for ref in refs):
            self._slots.force(self._holder(job.name), len(refs), gpus=gpus)
        elif len(refs) > max(1, self._executor.capacity().instances):
            await self._end(job, InstanceOutcome.FAILED, failure=self._no_capacity(job))
            return
        elif not await self._admit(job, len(refs), gpus):
            await self._end(self._job(job.name), InstanceOutcome.STOPPED)
            return
        try:
            while await self._attempt(self._job(job.name)):
                pass
        finally:
            self._slots.release(self._holder(job.name))

    def _no_capacity(self, job: S) -> str:
        """Return the FailureReason of a job with too many instances: SageMaker's text, and the local capacity."""
        capacity = self._executor.capacity().instances
        return (
            f"{_NO_CAPACITY}: {len(job.hosts)} instances were asked for, and {capacity} can run at the same time here."
            f" Ask for at most {capacity}, or raise the setting max_instances"
        )

    async def _admit(self, job: S, count: int, gpus: int) -> bool:
        """Take slots for ``count`` instances with ``gpus`` GPUs in all; the job is Pending until they are free.

        Return False, and take no slots, if the job is stopped meanwhile.
        """

        async def queued() -> None:
            await self._enter(job, SecondaryStatus.PENDING, "Waiting for other jobs to end")
            faults.point("control.queued")

        async def granted() -> None:
            await self._enter(self._job(job.name), SecondaryStatus.STARTING, f"Starting the {self._title}")

        return await self._take_slots(
            self._slots,
            job.name,
            count,
            gpus=gpus,
            stopped=lambda: self._job(job.name).stop_requested,
            when_queued=queued,
            when_granted=granted,
        )

    async def _attempt(self, job: S) -> bool:
        """Launch the current attempt and follow it to its end. Return whether another attempt is due."""
        refs = instances_of(job)
        if job.stop_requested and not any(self._launched(ref) for ref in refs):
            await self._end(job, InstanceOutcome.STOPPED)
            return False
        try:
            if not await self._launch_when_free(job, refs):
                await self._end(self._job(job.name), InstanceOutcome.STOPPED)
                return False
        except DataMissing as error:
            await self._end(job, InstanceOutcome.FAILED, failure=str(error))
            return False
        except CapacityError as error:
            await self._end(job, InstanceOutcome.FAILED, failure=f"{_NO_CAPACITY}: {error}")
            return False
        except LaunchError as error:
            await self._end(job, InstanceOutcome.FAILED, failure=f"{_OURS}: {error}")
            return False
        gang = await self._follow(job.name, refs)
        job, ended = self._job(job.name), gang.end()
        cause = _cause_of_restart(job, gang)
        if cause and await self._restart(job, cause):
            return True
        job = self._job(job.name)
        if job.status.terminal:
            return False
        if ended is None:
            await self._end(job, InstanceOutcome.FAILED, failure=gang.loss)
        else:
            await self._finish(job, ended)
        return False

    async def _restart(self, job: S, cause: str) -> bool:
        """Commit the next attempt, so that a restarted service continues with it. Return False if none is allowed."""
        now_ms = self._clock.now_ms()
        allowed = attempts_allowed(job)
        if allowed is not None and job.attempt >= allowed:
            return False
        wait_left_s = wait_time_left_s(job, now_ms)
        if run_time_left_s(job, now_ms) <= 0 or (wait_left_s is not None and wait_left_s <= 0):
            await self._end(job, InstanceOutcome.MAX_RUNTIME)
            return False
        how = SecondaryStatus.INTERRUPTED if job.is_spot else SecondaryStatus.RESTARTING
        number = f"{job.attempt + 1}" if allowed is None else f"{job.attempt + 1} of {allowed}"

        def again(now: S) -> S:
            if now.stop_requested or now.attempt != job.attempt or not now.may_enter(how):
                return now
            left = now.enter(how, at_ms=now_ms, message=f"Attempt {job.attempt} has ended: {cause}")
            starting = left.enter(SecondaryStatus.STARTING, at_ms=now_ms, message=f"Starting attempt {number}")
            return replace(starting, attempt=job.attempt + 1)

        faults.point("control.restart.before")
        restarted = await self._update(job.name, again)
        faults.point("control.restart.after")
        if restarted.attempt == job.attempt:
            return False
        _log.info("job.restarted", name=job.name, attempt=restarted.attempt, cause=cause)
        pause_s = pause_before_restart_s(restarted)
        if pause_s:
            await self._queue.wait(job.name, timeout_s=pause_s)
        return True

    async def _launch_when_free(self, job: S, refs: Sequence[InstanceRef]) -> bool:
        """Launch the instances; wait while all suitable machines are busy. Return False if the job was stopped."""
        while True:
            try:
                with delayed_by_full_disk(f"{self._title} {job.name}"):
                    await self._launch(job, refs)
                break
            except MachinesBusy as busy:
                _log.info("job.waits_for_machines", name=job.name, reason=str(busy))
                await self._wait_for_machines(job, f"Waiting for machines: {busy}")
            await self._queue.wait(job.name, timeout_s=_BUSY_S)
            job = self._job(job.name)
            if job.stop_requested:
                return False
        if job.secondary_status is SecondaryStatus.PENDING:
            await self._enter(job, SecondaryStatus.STARTING, f"Starting the {self._title}")
        return True

    async def _wait_for_machines(self, job: S, message: str) -> None:
        if job.secondary_status is SecondaryStatus.PENDING:
            await self._update(job.name, lambda now: now.restate(SecondaryStatus.PENDING, message=message))
        else:
            await self._enter(job, SecondaryStatus.PENDING, message)

    async def _launch(self, job: S, refs: Sequence[InstanceRef]) -> None:
        if all(self._launched(ref) for ref in refs):
            for ref in refs:
                await asyncio.to_thread(self._executor.relaunch, ref)
            return
        runtime_s = job.request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", 86400)
        keys = await self._credentials.issue(job, lifetime_s=runtime_s + _KEY_MARGIN_S)
        variables = {**self._service_variables, **keys.variables, **self._trace_variables(job)}
        async with self._launching:
            specs, inputs = await asyncio.to_thread(self._planner.plan, job, variables=variables)
            left_s = run_time_left_s(job, self._clock.now_ms())
            if job.attempt > 1:
                specs = tuple(replace(spec, max_runtime_s=max(1.0, left_s)) for spec in specs)
            faults.point("control.launch.before")
            await asyncio.to_thread(self._executor.launch, specs)
            faults.point("control.launch.after")
        await self._update(job.name, lambda now: replace(now, record={**now.record, **inputs}))

    def _launched(self, ref: InstanceRef) -> bool:
        """Return whether the instance was launched for this attempt, not only for an earlier one."""
        status = self._executor.observe(ref)
        return status.launched and status.attempt == ref.attempt

    async def _follow(self, name: str, refs: Sequence[InstanceRef]) -> Gang:
        """Follow the instances until all have ended. Return their final reports."""
        requested: dict[InstanceRef, StopReason] = {}
        while True:
            statuses = await asyncio.to_thread(lambda: [self._executor.observe(ref) for ref in refs])
            if any(status.attempt < ref.attempt for status, ref in zip(statuses, refs, strict=True)):
                await self._queue.wait(name, timeout_s=_LOOK_S)
                continue
            job = self._job(name)
            gang = Gang(job.hosts, statuses)
            job = await self._note_phases(job, gang.phases)
            if gang.over:
                return gang
            reason = StopReason.INTERRUPTED if job.interrupted else None
            reason = StopReason.STOPPED if job.stop_requested else reason
            if await self._stop(refs, statuses, gang.peers_must_stop or reason, requested):
                continue
            await self._queue.wait(name, timeout_s=_LOOK_S)

    async def _stop(
        self,
        refs: Sequence[InstanceRef],
        statuses: Sequence[InstanceStatus],
        reason: StopReason | None,
        requested: dict[InstanceRef, StopReason],
    ) -> bool:
        """Stop the running instances that are not in ``requested`` yet. Return whether there were any."""
        if reason is None:
            return False
        due = [ref for ref, status in zip(refs, statuses, strict=True) if status.running and ref not in requested]
        for ref in due:
            await asyncio.to_thread(self._executor.stop, ref, reason=reason)
            requested[ref] = reason
        if due:
            faults.point("control.stop_told")
        return bool(due)

    async def _note_phases(self, job: S, phases: Sequence[Phase]) -> S:
        """Add the transitions that follow from the instances' reports."""
        advanced = job
        for phase in phases:
            secondary = SecondaryStatus(phase.status)
            if not job.stop_requested and secondary != advanced.secondary_status and advanced.may_enter(secondary):
                advanced = advanced.enter(secondary, at_ms=phase.started_ms, message=phase.message)
        if advanced is job:
            return job
        reached = advanced.transitions[len(job.transitions) :]
        job = await self._update(job.name, lambda now: now if now.stop_requested else _replay(now, reached))
        for transition in reached:
            faults.point(f"control.phase.{transition.status}")
        return job

    async def _finish(self, job: S, ended: InstanceExit) -> None:
        outcome, failure, artifacts = ended.outcome, ended.failure, ""
        faults.point("control.publish.before")
        try:
            artifacts = await self._publisher.publish(job, ended)
        except ArtifactLost as error:
            outcome, failure = InstanceOutcome.FAILED, str(error)
        faults.point("control.publish.after")
        denied = denial_lines(self._denials.of(job.job_id))
        await asyncio.to_thread(self._publisher.log, job, denied)
        found = await self._publisher.final_metrics(job) if _asks_for_metrics(job) else FoundMetrics()
        job = await self._update(
            job.name,
            lambda now: replace(
                now,
                training_started_ms=ended.training_started_ms,
                training_ended_ms=ended.training_ended_ms,
                final_metrics=found.metrics,
                record={**now.record, **ended.record},
            ),
        )
        await self._end(job, outcome, failure=failure, model_artifacts=artifacts, notes=found.faults)

    async def _end(
        self,
        job: S,
        outcome: InstanceOutcome,
        *,
        failure: str = "",
        model_artifacts: str = "",
        notes: Sequence[str] = (),
    ) -> None:
        """Commit the job's end and revoke its keys, then clean up. A job never leaves a terminal state."""
        if outcome is not InstanceOutcome.STOPPED and job.stop_requested and outcome is not InstanceOutcome.MAX_RUNTIME:
            # A script that exits while it is being stopped counts as stopped.
            outcome = InstanceOutcome.STOPPED
        secondary, what = _OUTCOMES[outcome]
        at_ms = self._clock.now_ms()
        denied = self._denials.of(job.job_id)
        wait_left_s = wait_time_left_s(job, at_ms)
        if outcome is InstanceOutcome.MAX_RUNTIME and wait_left_s is not None and wait_left_s <= 0:
            secondary = SecondaryStatus.MAX_WAIT_TIME_EXCEEDED
            what = "reached MaxWaitTimeInSeconds and was stopped"
        message = f"{self._title.capitalize()} {what}"

        def end(now: S) -> S:
            if now.status.terminal:
                return now
            ended = now.enter(secondary, at_ms=at_ms, message="; ".join((message, *notes)))
            reason = with_denials(failure, denied, most=_FAILURE_LIMIT) if outcome is InstanceOutcome.FAILED else ""
            return replace(ended, failure_reason=reason, model_artifacts=model_artifacts)

        faults.point("control.finalize.before")

        def forget(transaction: Transaction) -> None:
            end_rights(transaction, job.job_id)

        job = await self._update(job.name, end, also=forget)
        faults.point("control.finalize.after")
        _log.info("job.ended", name=job.name, status=str(job.status), reason=job.failure_reason)
        self._announce(job)
        await asyncio.to_thread(self._publisher.clean_up, job)
        faults.point("control.cleaned")

    async def _enter(self, job: S, status: SecondaryStatus, message: str) -> S:
        at_ms = self._clock.now_ms()
        return await self._update(
            job.name, lambda now: now.enter(status, at_ms=at_ms, message=message) if now.may_enter(status) else now
        )


def _cause_of_restart(job: TrainingJob, gang: Gang) -> str:
    """Return why another attempt is due after the ended one; empty if none is due."""
    ended = gang.end()
    if job.stop_requested or (
        ended is not None and ended.outcome in (InstanceOutcome.COMPLETED, InstanceOutcome.MAX_RUNTIME)
    ):
        return ""
    if job.interrupted and gang.was_cut_short:
        return "the instances were interrupted"
    if gang.lost:
        why = f": {ended.failure[:200]}" if ended is not None and ended.lost else ""
        return f"{', '.join(gang.lost)} was lost{why}"
    if "RetryStrategy" in job.request and ended is not None and ended.failure.startswith(_OURS):
        return ended.failure[:200]
    return ""


def _asks_for_metrics(job: TrainingJob) -> bool:
    return bool(job.run_request["AlgorithmSpecification"].get("MetricDefinitions"))


def _replay(now: S, reached: Sequence[Transition]) -> S:
    """Return the stored job with further transitions, except those that its current state no longer allows."""
    for transition in reached:
        newer = not now.transitions or transition.started_ms >= now.transitions[-1].started_ms
        if newer and transition.status != now.secondary_status and now.may_enter(transition.status):
            now = now.enter(transition.status, at_ms=transition.started_ms, message=transition.message)
    return now
