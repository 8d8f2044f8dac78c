"""The results of steps that succeeded, by which CacheConfig finds them again."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tidemill.control.pipelines.repetition import Caching
from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.pipelines.step_types import JobStep
from tidemill.control.resources import STEP_RESULT
from tidemill.core.clock import Clock
from tidemill.core.pipelines import PipelineExecution, StepRun, StepStatus
from tidemill.store.records.base import Record, RecordStore, Transaction

__all__ = ["StepResult", "StepResults"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step created, which a later execution may reuse.

    Attributes:
        job: Name of its job.
        arn: ARN of its job.
        execution: ARN of the execution that created it.
        ended_ms: Time of its end, in milliseconds since the epoch.
    """

    job: str
    arn: str
    execution: str
    ended_ms: int


class StepResults:
    """The newest result for each step and its arguments.

    Args:
        records: Stores the results.
        clock: Provides the current time.
    """

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def find(
        self, key: str, caching: Caching, job: JobStep, arguments: Mapping[str, Any], requests: StepRequests
    ) -> StepResult | None:
        """Return a result that may be reused, or None.

        Args:
            key: Names the result.
            caching: How old it may be.
            job: Type of the step.
            arguments: The members of the step's request.
            requests: Asks whether the job still exists.
        """
        record = self._records.get(STEP_RESULT, key)
        if record is None:
            return None
        result = StepResult(**record.document)
        age_s = (self._clock.now_ms() - result.ended_ms) / 1000
        if caching.expires_s is not None and age_s > caching.expires_s:
            return None
        description = await requests.find(job.operation("Describe"), {job.name: result.job})
        if description is None or not job.has_succeeded(description, arguments):
            return None
        return result if job.will_be(description, arguments) else None

    def keeping(self, execution: PipelineExecution, run: StepRun) -> Callable[[Transaction], None]:
        """Return what stores the result of a step in the commit of its success; nothing if it is not to be reused.

        Args:
            execution: The execution.
            run: The step.
        """

        def keep(transaction: Transaction) -> None:
            if not run.cache_key or run.ended_ms is None or run.status is not StepStatus.SUCCEEDED:
                return
            result = StepResult(job=run.job, arn=run.arn, execution=execution.arn, ended_ms=run.ended_ms)
            times = {"created_ms": run.ended_ms, "modified_ms": run.ended_ms}
            record = Record(kind=STEP_RESULT, name=run.cache_key, **times, document=asdict(result))
            if (
                transaction.update(STEP_RESULT, run.cache_key, lambda old: replace(old, document=record.document))
                is None
            ):
                transaction.insert(record)

        return keep
