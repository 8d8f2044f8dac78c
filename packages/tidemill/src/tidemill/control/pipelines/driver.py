"""Drive each execution from its start to its end, with one task per execution.

All state is in the store and in the jobs. Before a step's job is created, the request that creates it is committed with
the job's name, which depends on the execution, the step and the attempt alone. After kill -9 the next service sends the
same request unless the job exists, so that no step creates two jobs, and continues to watch the jobs that run.
"""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from tidemill.control.jobs import AnyJob
from tidemill.control.pipelines.conditions import holds
from tidemill.control.pipelines.definition import PipelineDefinition, StepDefinition
from tidemill.control.pipelines.executions import Executions
from tidemill.control.pipelines.expressions import Unresolved, resolved
from tidemill.control.pipelines.pipelines import Pipelines
from tidemill.control.pipelines.repetition import cache_key, failure_kind
from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.pipelines.results import StepResults
from tidemill.control.pipelines.step_types import JOBS, JobStep
from tidemill.control.pipelines.values import StepValues
from tidemill.control.work_queue import WorkQueue, guarded
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.pipelines import ExecutionStatus, PipelineExecution, StepRun, StepStatus
from tidemill.errors import AwsError, ResourceInUse, ServiceUnavailable, ValidationException
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import RecordStore

_log = structlog.get_logger("tidemill.pipelines")
_LOOK_S = 5.0
_STEP_REASON_LIMIT = 1024
_REASON_LIMIT = 1300
_FAILED = ("Failed", "Stopped", "OutOfService", "UpdateRollbackFailed")
"""Statuses of jobs and endpoints that end without success."""


def job_name(execution: PipelineExecution, step: str, *, attempt: int, longest: int, prefix: str = "") -> str:
    """Return the name of a step's job: ``pipelines-EXECUTION-STEP-SUFFIX``, as on SageMaker, shortened if necessary.

    Args:
        longest: Maximum length of the name.
        prefix: What the definition gives as name; it takes the place of ``pipelines``. Default: it gives none.
    """
    seed = f"{execution.arn} {step} {execution.retries} {attempt}"
    suffix = hashlib.sha256(seed.encode()).hexdigest()[:10]
    head = f"{prefix or 'pipelines'}-{execution.execution_id}-{step.replace('_', '-')}"
    return f"{head[: longest - len(suffix) - 1].rstrip('-')}-{suffix}"


class PipelineDriver:
    """Runs the executions that have not ended.

    Args:
        records: Stores pipelines, executions and results.
        objects: Holds property files.
    """

    def __init__(self, records: RecordStore, objects: ObjectStore, pipelines: Pipelines, *, clock: Clock) -> None:
        self.executions = Executions(records, pipelines, clock=clock, wake=self.wake)
        self._pipelines = pipelines
        self._objects = objects
        self._clock = clock
        self._results = StepResults(records, clock=clock)
        self._queue = WorkQueue("pipeline execution", self._drive)
        self._requests: StepRequests | None = None
        self._watched: dict[str, frozenset[str]] = {}
        """By the name of an execution, the jobs of its running steps."""

    async def start(self, requests: StepRequests) -> None:
        """Resume every execution that has not ended."""
        self._requests = requests
        async for name in self.executions.unfinished():
            self.wake(name)

    def wake(self, name: str) -> None:
        """Drive an execution that was started or changed, by the name of its record."""
        self._queue.wake(name)

    def job_ended(self, job: AnyJob) -> None:
        """Look at the execution of a job that has ended, if a step created it."""
        for name, jobs in self._watched.items():
            if job.name in jobs:
                self.wake(name)

    async def close(self) -> None:
        """Stop driving executions. The next service continues with them."""
        await self._queue.close()

    async def _drive(self, name: str) -> None:
        async def fail(reason: str) -> None:
            await self._end(name, ExecutionStatus.FAILED, reason[:_STEP_REASON_LIMIT])

        try:
            await guarded(self._run(name), name, fail)
        finally:
            self._watched.pop(name, None)

    async def _run(self, name: str) -> None:
        while await self._advanced(name):
            await asyncio.sleep(0)

    async def _advanced(self, name: str) -> bool:
        """Move an execution on by what is possible now, then wait for news. Return False when it has ended."""
        execution = self.executions.find(name)
        if execution is None or execution.status.terminal:
            return False
        definition = self._pipelines.definition(execution.pipeline, execution.version)
        self._watch(execution)
        for run in execution.steps:
            if not run.status.terminal:
                execution = await self._moved(execution, definition.steps[run.name], run, definition)
        for step in _ready(execution, definition):
            run = StepRun(name=step.name, status=StepStatus.STARTING, started_ms=self._clock.now_ms())
            execution = await self._prepared(execution, step, run, definition)
        if any(not run.status.terminal for run in execution.steps):
            await self._queue.wait(name, timeout_s=self._pause_s(execution))
        elif not _ready(execution, definition):
            await self._finish(execution)
        return True

    def _watch(self, execution: PipelineExecution) -> None:
        """Note the jobs whose ends move an execution on, before each is created, so that no end is missed."""
        jobs = frozenset(run.job for run in execution.steps if run.job and not run.status.terminal)
        self._watched[execution.name] = jobs

    def _pause_s(self, execution: PipelineExecution) -> float:
        """Return how long to wait for news: until the next attempt of a step, and no longer than `_LOOK_S`."""
        now_ms = self._clock.now_ms()
        due = (max(0, run.due_ms - now_ms) / 1000 for run in execution.steps if run.due_ms is not None)
        return min((_LOOK_S, *due))

    async def _prepared(
        self, execution: PipelineExecution, step: StepDefinition, run: StepRun, definition: PipelineDefinition
    ) -> PipelineExecution:
        """Evaluate the step's arguments; end it, or commit the request that creates its job, and create it."""
        now_ms = self._clock.now_ms()
        try:
            if step.type in JOBS:
                run = await self._with_arguments(execution, step, run, definition)
            else:
                values = self._values(execution, definition)
                run = await _evaluated(step, run, values, now_ms=now_ms)
        except Unresolved as error:
            reason = f"ClientError: {error}"[:_STEP_REASON_LIMIT]
            run = run.end(StepStatus.FAILED, at_ms=now_ms, reason=reason)
        faults.point("control.pipelines.step.before")
        execution = await self._store(execution, run)
        faults.point("control.pipelines.step.committed")
        if run.status is StepStatus.STARTING:
            return await self._created(execution, step, run)
        return execution

    async def _with_arguments(
        self, execution: PipelineExecution, step: StepDefinition, run: StepRun, definition: PipelineDefinition
    ) -> StepRun:
        """Return the step with the request that creates its job, or with the result of an earlier execution."""
        job = JOBS[step.type]
        given = "" if job.repeatable else step.arguments.get(job.name, "")
        name = str(await resolved(given, self._values(execution, definition)))
        if not job.changed_by:
            name = job_name(execution, step.name, attempt=run.attempt, longest=job.longest_name, prefix=name)
        elif not name:
            raise Unresolved(f"the arguments of a step {step.type} have no {job.name}; give one")
        arguments = await resolved(step.arguments, self._values(execution, definition, job=name))
        key = ""
        if step.caching is not None:
            key, asks = cache_key(execution.pipeline_id, step.name, job, arguments), self._sender
            found = await self._results.find(run, key, oldest_s=step.caching, job=job, arguments=arguments, asks=asks)
            if found is not None:
                return found
        if job.tracked and execution.experiment:
            names = dict(zip(("ExperimentName", "TrialName"), execution.experiment, strict=True))
            arguments = {**arguments, "ExperimentConfig": {**names, **(arguments.get("ExperimentConfig") or {})}}
        if job.repeatable:
            return replace(run, arguments={**arguments, job.repeatable: name})
        tags = [*(arguments.get("Tags") or []), *_tags(execution, step)]
        return replace(run, job=name, arguments={**arguments, job.name: name, "Tags": tags}, cache_key=key)

    async def _created(self, execution: PipelineExecution, step: StepDefinition, run: StepRun) -> PipelineExecution:
        """Create the job of a step unless it exists; change an endpoint that exists with another configuration."""
        job, arguments = JOBS[step.type], run.arguments or {}
        try:
            answer = await self._described(job, run)
            if answer is None or (job.changed_by and job.status_in(answer) == "Deleting"):
                answer = await self._create(execution, job, arguments)
            elif not job.will_be(answer, arguments):
                if job.status_in(answer) not in (job.succeeded, *_FAILED):
                    return execution  # it is being changed; the next look decides
                changes = {member: arguments[member] for member in job.changed_by if member in arguments}
                answer = await self._sender.send(execution, job.operation("Update"), changes)
        except ServiceUnavailable:
            raise
        except AwsError as error:
            kind = failure_kind(error.code, status=error.status)
            return await self._failed(execution, step, run, kind, f"ClientError: {error.code}: {error.message}")
        faults.point("control.pipelines.job.created")
        arn = answer[job.arn]
        kept = arguments if job.wanted else None
        run = replace(run, status=StepStatus.EXECUTING, job=run.job or arn, arn=arn, arguments=kept)
        execution = await self._store(execution, run)
        faults.point("control.pipelines.job.committed")
        return execution if job.succeeded else await self._succeeded(execution, run)

    async def _create(
        self, execution: PipelineExecution, job: JobStep, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Send the request of a step. As on SageMaker, a missing group of packages, experiment or trial is created."""
        group = arguments.get("ModelPackageGroupName") if job.repeatable else None
        if group is not None:
            await self._ensure(execution, "ModelPackageGroup", {"ModelPackageGroupName": group})
        if job.tracked and execution.experiment:
            experiment, trial = execution.experiment
            await self._ensure(execution, "Experiment", {"ExperimentName": experiment})
            await self._ensure(execution, "Trial", {"TrialName": trial}, {"ExperimentName": experiment})
        return await self._sender.send(execution, job.operation("Create"), arguments)

    async def _ensure(
        self, execution: PipelineExecution, kind: str, name: Mapping[str, str], others: Mapping[str, str] | None = None
    ) -> None:
        """Create a resource, with other members than its name, unless it exists."""
        if await self._sender.find(f"Describe{kind}", name) is not None:
            return
        try:
            await self._sender.send(execution, f"Create{kind}", {**name, **(others or {})})
        except (ResourceInUse, ValidationException):
            # another execution may have created it meanwhile
            if await self._sender.find(f"Describe{kind}", name) is None:
                raise

    async def _moved(
        self, execution: PipelineExecution, step: StepDefinition, run: StepRun, definition: PipelineDefinition
    ) -> PipelineExecution:
        """Look at a step that has begun, and do what is next."""
        if execution.status is ExecutionStatus.STOPPING and run.status is not StepStatus.STOPPING:
            return await self._stopped(execution, step, run)
        if run.due_ms is not None:
            due = run.due_ms <= self._clock.now_ms()
            return await self._prepared(execution, step, replace(run, due_ms=None), definition) if due else execution
        if run.status is StepStatus.STARTING:
            return await self._created(execution, step, run)
        return await self._observed(execution, step, run)

    async def _observed(self, execution: PipelineExecution, step: StepDefinition, run: StepRun) -> PipelineExecution:
        """Look at the job of a step; end the step if the job has ended."""
        job = JOBS[step.type]
        description = await self._described(job, run)
        if description is None:
            return await self._failed(execution, step, run, "", f"ClientError: {run.job} was deleted while it ran")
        status = job.status_in(description)
        if job.has_succeeded(description, run.arguments or {}):
            return await self._succeeded(execution, run)
        if status == "Stopped" and execution.status is ExecutionStatus.STOPPING:
            return await self._store(execution, run.end(StepStatus.STOPPED, at_ms=self._clock.now_ms()))
        if status not in (job.succeeded, *_FAILED):
            return execution
        ended = f"with the {job.wanted} {description[job.wanted]}" if status == job.succeeded else f"in status {status}"
        reason = description.get("FailureReason") or f"ClientError: {run.job} ended {ended}"
        return await self._failed(execution, step, run, failure_kind("", status=200, reason=reason), reason)

    async def _stopped(self, execution: PipelineExecution, step: StepDefinition, run: StepRun) -> PipelineExecution:
        """Stop the job of a step, if it exists and can be stopped."""
        job = JOBS[step.type]
        description = await self._described(job, run)
        if description is None:
            return await self._store(execution, run.end(StepStatus.STOPPED, at_ms=self._clock.now_ms()))
        if job.stops and job.status_in(description) not in (job.succeeded, *_FAILED):
            try:
                await self._sender.send(None, job.operation("Stop"), {job.name: run.job})
            except ServiceUnavailable:
                raise
            except AwsError as error:
                _log.info("pipelines.not_stopped", execution=execution.arn, job=run.job, reason=error.message)
        return await self._store(
            execution, replace(run, status=StepStatus.STOPPING, arn=description[job.arn], due_ms=None)
        )

    async def _described(self, job: JobStep, run: StepRun) -> Mapping[str, Any] | None:
        """Return the description of a step's job, or None if there is none."""
        return await self._sender.find(job.operation("Describe"), {job.name: run.job}) if run.job else None

    async def _succeeded(self, execution: PipelineExecution, run: StepRun) -> PipelineExecution:
        return await self._store(execution, run.end(StepStatus.SUCCEEDED, at_ms=self._clock.now_ms()))

    async def _failed(
        self, execution: PipelineExecution, step: StepDefinition, run: StepRun, kind: str, reason: str
    ) -> PipelineExecution:
        """End a step that failed, or commit when it is tried again."""
        now_ms = self._clock.now_ms()
        age_s = (now_ms - run.started_ms) / 1000
        waits = [each.wait_s(attempts=run.attempt, age_s=age_s) for each in step.retries if kind in each.kinds]
        wait_s = next((each for each in waits if each is not None), None)
        if wait_s is None or execution.status is ExecutionStatus.STOPPING:
            run = run.end(StepStatus.FAILED, at_ms=now_ms, reason=reason[:_STEP_REASON_LIMIT])
        else:
            _log.info("pipelines.retry", execution=execution.arn, step=step.name, wait_s=wait_s, reason=reason)
            due_ms = now_ms + round(wait_s * 1000)
            run = replace(run, status=StepStatus.STARTING, attempt=run.attempt + 1, due_ms=due_ms, job="", arn="")
        return await self._store(execution, run)

    async def _finish(self, execution: PipelineExecution) -> None:
        failed = [run for run in execution.steps if run.status is StepStatus.FAILED]
        if execution.status is ExecutionStatus.STOPPING:
            await self._end(execution.name, ExecutionStatus.STOPPED)
        elif failed:
            reason = f"The step {failed[0].name!r} failed: {failed[0].failure_reason}"
            await self._end(execution.name, ExecutionStatus.FAILED, reason)
        else:
            await self._end(execution.name, ExecutionStatus.SUCCEEDED)

    async def _end(self, name: str, status: ExecutionStatus, reason: str = "") -> None:
        at_ms = self._clock.now_ms()
        faults.point("control.pipelines.end.before")
        ended = await self.executions.update(
            name, lambda now: now.end(status, at_ms=at_ms, reason=reason[:_REASON_LIMIT])
        )
        _log.info("pipelines.ended", execution=ended.arn, status=str(ended.status), reason=ended.failure_reason)
        faults.point("control.pipelines.end.after")

    async def _store(self, execution: PipelineExecution, run: StepRun) -> PipelineExecution:
        """Commit the state of a step, and its result if that may be reused."""
        keep = self._results.keeping(execution, run)
        stored = await self.executions.update(execution.name, lambda now: now.with_step(run), also=keep)
        self._watch(stored)
        return stored

    @property
    def _sender(self) -> StepRequests:
        if self._requests is None:
            raise ServiceUnavailable("the service has not started yet")
        return self._requests

    def _values(self, execution: PipelineExecution, definition: PipelineDefinition, *, job: str = "") -> StepValues:
        return StepValues(execution, definition, self._sender, self._objects, job=job, now_ms=self._clock.now_ms())


def _ready(execution: PipelineExecution, definition: PipelineDefinition) -> list[StepDefinition]:
    """Return the steps that can begin now. None can once a step has failed or a stop was requested."""
    active = sum(not run.status.terminal for run in execution.steps)
    failed = any(run.status in (StepStatus.FAILED, StepStatus.STOPPED) for run in execution.steps)
    if failed or execution.status is ExecutionStatus.STOPPING:
        return []
    room = len(definition.steps) if execution.max_parallel is None else execution.max_parallel - active
    done = {run.name: run for run in execution.steps if run.status is StepStatus.SUCCEEDED}
    ready = [
        step
        for step in definition.steps.values()
        if execution.find(step.name) is None
        and (not execution.selected or step.name in execution.selected)
        and step.after <= done.keys()
        and (not step.condition or done[step.condition].outcome == step.branch)
    ]
    return ready[: max(0, room)]


async def _evaluated(step: StepDefinition, run: StepRun, values: StepValues, *, now_ms: int) -> StepRun:
    """Return the ended run of a Condition or Fail step."""
    if step.type == "Fail":
        message = str(await resolved(step.arguments.get("ErrorMessage", ""), values))
        return replace(run.end(StepStatus.FAILED, at_ms=now_ms, reason=message[:_STEP_REASON_LIMIT]), message=message)
    outcomes = [await holds(each, values) for each in step.arguments["Conditions"]]
    return replace(run.end(StepStatus.SUCCEEDED, at_ms=now_ms), outcome=str(all(outcomes)))


def _tags(execution: PipelineExecution, step: StepDefinition) -> list[dict[str, str]]:
    """Return the tags that SageMaker adds to what a step creates."""
    values = {
        "sagemaker:pipeline-execution-arn": execution.arn,
        "sagemaker:pipeline-name": execution.pipeline,
        "sagemaker:pipeline-step-name": step.name,
    }
    return [{"Key": key, "Value": value} for key, value in values.items()]
