"""The results of steps that succeeded, by which CacheConfig finds them again."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.pipelines.requests import StepRequests
from tidemill.control.pipelines.step_types import JobStep
from tidemill.control.resources import STEP_RESULT
from tidemill.core.clock import Clock
from tidemill.core.pipelines import PipelineExecution, StepRun, StepStatus
from tidemill.store.records.base import Record, RecordStore, Transaction


class StepResults:
    """The newest result for each step and its arguments."""

    def __init__(self, records: RecordStore, *, clock: Clock) -> None:
        self._records = records
        self._clock = clock

    async def find(
        self,
        run: StepRun,
        key: str,
        *,
        oldest_s: float,
        job: JobStep,
        arguments: Mapping[str, Any],
        asks: StepRequests,
    ) -> StepRun | None:
        """Return a step with the result of an earlier execution; None if there is none that may be reused.

        Args:
            key: Names the result.
            oldest_s: Age in seconds up to which it is reused.
            arguments: The members of the step's request.
            asks: Asks whether the job still exists.
        """
        record = self._records.get(STEP_RESULT, key)
        if record is None:
            return None
        found, now_ms = record.document, self._clock.now_ms()
        if now_ms - found["ended_ms"] > oldest_s * 1000:
            return None
        description = await asks.find(job.operation("Describe"), {job.name: found["job"]})
        if description is None or not job.has_succeeded(description, arguments):
            return None
        reused = replace(run, job=found["job"], arn=found["arn"], cached_from=found["execution"])
        return reused.end(StepStatus.SUCCEEDED, at_ms=now_ms) if job.will_be(description, arguments) else None

    def keeping(self, execution: PipelineExecution, run: StepRun) -> Callable[[Transaction], None]:
        """Return what stores the result of a step in the commit of its success; nothing if it is not to be reused."""

        def keep(transaction: Transaction) -> None:
            if not run.cache_key or run.ended_ms is None or run.status is not StepStatus.SUCCEEDED:
                return
            document = {"job": run.job, "arn": run.arn, "execution": execution.arn, "ended_ms": run.ended_ms}
            times = {"created_ms": run.ended_ms, "modified_ms": run.ended_ms}
            record = Record(kind=STEP_RESULT, name=run.cache_key, **times, document=document)
            if transaction.update(STEP_RESULT, run.cache_key, lambda old: replace(old, document=document)) is None:
                transaction.insert(record)

        return keep
