"""Pipelines, their executions and the state of each step (`DescribePipelineExecution` in SageMaker's API reference)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from tidemill.core.documents import Document, members_of


class ExecutionStatus(StrEnum):
    """SageMaker's PipelineExecutionStatus."""

    EXECUTING = "Executing"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"

    @property
    def terminal(self) -> bool:
        """Whether an execution in this state has ended."""
        return self not in (ExecutionStatus.EXECUTING, ExecutionStatus.STOPPING)


class StepStatus(StrEnum):
    """SageMaker's StepStatus."""

    STARTING = "Starting"
    EXECUTING = "Executing"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FAILED = "Failed"
    SUCCEEDED = "Succeeded"

    @property
    def terminal(self) -> bool:
        """Whether a step in this state has ended."""
        return self in (StepStatus.STOPPED, StepStatus.FAILED, StepStatus.SUCCEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResource(Document):
    """One pipeline without its definition, which is in the records of its versions.

    Attributes:
        name: PipelineName.
        pipeline_id: Hexadecimal; distinguishes it from an earlier pipeline of this name.
        role: RoleArn.
        version: Number of the newest version, from 1.
        token: ClientRequestToken of the CreatePipeline request.
        creator: ARN of the key that created it.
        modifier: ARN of the key that changed it last.
        created_ms: Milliseconds since the epoch, like the other times.
        last_run_ms: Time of the newest execution; None without one.
        display_name: PipelineDisplayName.
        description: PipelineDescription.
        max_parallel: MaxParallelExecutionSteps; None without a limit.
    """

    name: str
    arn: str
    pipeline_id: str
    role: str
    version: int
    token: str
    creator: str
    modifier: str
    created_ms: int
    last_run_ms: int | None = None
    display_name: str = ""
    description: str = ""
    max_parallel: int | None = None

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name and times of creation and change."""
        shown = ("arn", "role", "display_name", "description", "last_run_ms")
        return {name: getattr(self, name) for name in shown}


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """The state of one step that has begun.

    Attributes:
        started_ms: Milliseconds since the epoch, like the other times.
        ended_ms: Time of its end; None before.
        attempt: 1 for the first attempt; the job's name depends on it.
        job: Name of the step's job or resource; empty for conditions and Fail steps.
        arn: ARN of the job or resource; empty until it is created.
        arguments: The request that creates the job. Kept until it is created, so that a restarted service sends the
            same request.
        cache_key: Names the record that a later execution finds, if the step is cached.
        due_ms: Time of the next attempt of a step that failed and is tried again; None otherwise.
        outcome: ``True`` or ``False`` for a condition.
        message: ErrorMessage of a Fail step.
        cached_from: ARN of the execution whose result was reused because of CacheConfig.
        selected_from: ARN of the execution whose result was reused because the step was not selected.
    """

    name: str
    status: StepStatus
    started_ms: int
    ended_ms: int | None = None
    attempt: int = 1
    job: str = ""
    arn: str = ""
    arguments: Mapping[str, Any] | None = None
    cache_key: str = ""
    due_ms: int | None = None
    outcome: str = ""
    message: str = ""
    failure_reason: str = ""
    cached_from: str = ""
    selected_from: str = ""

    def end(self, status: StepStatus, *, at_ms: int, reason: str = "") -> "StepRun":
        """Return the ended step.

        Args:
            status: A terminal status.
            at_ms: Milliseconds since the epoch.
            reason: FailureReason.
        """
        return replace(self, status=status, ended_ms=at_ms, failure_reason=reason, arguments=None, due_ms=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineExecution(Document):
    """One execution of a version of a pipeline.

    Attributes:
        execution_id: 12 lower-case letters and digits.
        pipeline_id: As in `PipelineResource`.
        version: Number of the version that is executed.
        role: RoleArn of its steps' requests, if the setting ``roles`` names it.
        key_id: Access key id of the key that started it.
        starter: ARN of that key.
        parameters: Values by name: of the request, else the defaults.
        created_ms: Milliseconds since the epoch, like the other times.
        token: ClientRequestToken of the StartPipelineExecution request.
        retry_token: ClientRequestToken of the last RetryPipelineExecution request.
        retries: Number of RetryPipelineExecution requests that were accepted.
        display_name: PipelineExecutionDisplayName.
        description: PipelineExecutionDescription.
        max_parallel: MaxParallelExecutionSteps; None without a limit.
        selected: Names of the selected steps; empty if all are executed.
        source: ARN of the execution whose results take the place of the steps that were not selected.
        experiment: Names of the experiment and of the trial; empty without PipelineExperimentConfig.
        ended_ms: Time of its end; None before.
        steps: The steps that have begun, in this order.
    """

    execution_id: str
    pipeline: str
    pipeline_arn: str
    pipeline_id: str
    version: int
    role: str
    key_id: str
    starter: str
    parameters: Mapping[str, Any]
    created_ms: int
    token: str
    retry_token: str = ""
    retries: int = 0
    display_name: str = ""
    description: str = ""
    max_parallel: int | None = None
    selected: tuple[str, ...] = ()
    source: str = ""
    experiment: tuple[str, ...] = ()
    status: ExecutionStatus = ExecutionStatus.EXECUTING
    ended_ms: int | None = None
    failure_reason: str = ""
    steps: tuple[StepRun, ...] = ()

    @property
    def arn(self) -> str:
        """The execution's ARN."""
        return f"{self.pipeline_arn}/execution/{self.execution_id}"

    @property
    def name(self) -> str:
        """The name of its record, which is the end of its ARN. Names of pipelines contain no slash."""
        return f"pipeline/{self.pipeline}/execution/{self.execution_id}"

    def find(self, step: str) -> StepRun | None:
        """Return the state of a step, or None if it has not begun.

        Args:
            step: Name of the step.
        """
        return next((run for run in self.steps if run.name == step), None)

    def with_step(self, run: StepRun) -> "PipelineExecution":
        """Return the execution with a new or changed step.

        Args:
            run: The state of the step.
        """
        if self.find(run.name) is None:
            return replace(self, steps=(*self.steps, run))
        return self.with_steps(run if each.name == run.name else each for each in self.steps)

    def with_steps(self, runs: Iterable[StepRun]) -> "PipelineExecution":
        """Return the execution with other steps.

        Args:
            runs: All steps that have begun.
        """
        return replace(self, steps=tuple(runs))

    def end(self, status: ExecutionStatus, *, at_ms: int, reason: str = "") -> "PipelineExecution":
        """Return the ended execution; one that has already ended is returned unchanged.

        Args:
            status: A terminal status.
            at_ms: Milliseconds since the epoch.
            reason: FailureReason. Steps that run fail with it, too.
        """
        if self.status.terminal:
            return self
        steps = (
            run if run.status.terminal else run.end(StepStatus.FAILED, at_ms=at_ms, reason=reason) for run in self.steps
        )
        return replace(self, status=status, ended_ms=at_ms, failure_reason=reason, steps=tuple(steps))

    def to_document(self) -> dict[str, Any]:  # type: ignore[override] - nobody passes a dict_factory
        """Return the JSON-able form for the store. Values that are defaults of a step are left out."""
        document = members_of(self, without=("steps",))
        return {**document, "steps": [_step_document(run) for run in self.steps]}

    def to_summary(self) -> dict[str, Any]:
        """Return the values that lists show besides name, status and times of creation and change."""
        shown = ("arn", "display_name", "description", "failure_reason", "created_ms")
        return {name: getattr(self, name) for name in shown}


def _step_document(run: StepRun) -> dict[str, Any]:
    defaults = {field.name: field.default for field in fields(run)}
    return {name: value for name, value in members_of(run).items() if value != defaults[name]}
