"""Executions of pipelines: start, look up, list, change, stop, retry. `tidemill.control.pipelines.driver` runs them."""

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemill.control.pipelines.definition import PipelineDefinition
from tidemill.control.pipelines.expressions import resolved
from tidemill.control.pipelines.parameters import parameter_values
from tidemill.control.pipelines.pipelines import (
    Pipelines,
    described,
    missing_pipeline,
    version_name,
)
from tidemill.control.pipelines.selection import reused_steps
from tidemill.control.pipelines.values import ExecutionValues
from tidemill.control.resources import PIPELINE, PIPELINE_EXECUTION, PIPELINE_VERSION, page_of, record_of
from tidemill.control.search.pages import walk
from tidemill.core import faults
from tidemill.core.clock import Clock
from tidemill.core.names import role_name
from tidemill.core.pipelines import ExecutionStatus, PipelineExecution, PipelineResource, StepStatus
from tidemill.errors import ResourceNotFound, ValidationException
from tidemill.store.records.base import Query, Record, RecordStore, Summary, Transaction

_ID_LENGTH = 12

Also = Callable[[Transaction], None]
"""Makes further changes in the commit that changes an execution."""


class Executions:
    """The executions of all pipelines.

    Args:
        wake: Called with the name of a new or changed execution.
    """

    def __init__(
        self, records: RecordStore, pipelines: Pipelines, *, clock: Clock, wake: Callable[[str], None]
    ) -> None:
        self._records = records
        self._pipelines = pipelines
        self._clock = clock
        self._wake = wake

    async def start(self, request: Mapping[str, Any], *, key_id: str, starter: str) -> PipelineExecution:
        """Accept an execution. After this returns, it survives kill -9.

        Args:
            key_id: Access key id of the caller.
            starter: ARN of the caller.

        Returns:
            The execution; the one that an earlier request with the same ClientRequestToken started.

        Raises:
            ResourceNotFound: There is no such pipeline or version.
            ValidationException: A parameter or a selected step is not allowed.
        """
        pipeline = self._pipelines.get(request["PipelineName"])
        version = request.get("PipelineVersionId", pipeline.version)
        definition = self._pipelines.definition(pipeline.name, version)
        fields: dict[str, Any] = {"max_parallel": pipeline.max_parallel, **described(request, "PipelineExecution")}
        new = PipelineExecution(
            execution_id=_execution_id(pipeline, request["ClientRequestToken"]),
            pipeline=pipeline.name,
            pipeline_arn=pipeline.arn,
            pipeline_id=pipeline.pipeline_id,
            version=version,
            role=role_name(request.get("RoleArn", pipeline.role)),
            key_id=key_id,
            starter=starter,
            parameters=parameter_values(definition.parameters, request.get("PipelineParameters", ())),
            created_ms=self._clock.now_ms(),
            token=request["ClientRequestToken"],
            **fields,
        )
        new = self._selected(new, request.get("SelectiveExecutionConfig"), definition)
        values = ExecutionValues(new, now_ms=new.created_ms)
        new = replace(new, experiment=tuple(await resolved(list(definition.experiment), values)))
        execution = await self._records.change(lambda transaction: _start(transaction, new), grows=True)
        faults.point("control.pipelines.started")
        self._wake(execution.name)
        return execution

    def record(self, arn: str) -> Record:
        """Return the record of an execution.

        Raises:
            ResourceNotFound: There is no such execution.
        """
        record = self._records.get(PIPELINE_EXECUTION, arn.rpartition(":")[2])
        # Policies are compared with the ARN of the request, so it must be that of the execution.
        if record is None or record.summary["arn"] != arn:
            raise ResourceNotFound(
                f"Pipeline execution {arn!r} does not exist; ListPipelineExecutions shows those that do"
            )
        return record

    def get(self, arn: str) -> PipelineExecution:
        """Return an execution.

        Raises:
            ResourceNotFound: As for `record`.
        """
        return PipelineExecution.from_document(self.record(arn).document)

    def find(self, name: str) -> PipelineExecution | None:
        """Return an execution by the name of its record, or None if it does not exist."""
        record = self._records.get(PIPELINE_EXECUTION, name)
        return None if record is None else PipelineExecution.from_document(record.document)

    async def list(self, pipeline: str, query: Query) -> tuple[tuple[Summary, ...], str | None]:
        """Return one page of the executions of a pipeline and the token of the next page.

        Raises:
            ValidationException: The token was not issued for this query.
        """
        query = replace(query, name_contains=f"pipeline/{pipeline}/execution/")
        return await page_of(self._records, PIPELINE_EXECUTION, query)

    async def unfinished(self) -> AsyncIterator[str]:
        """Yield the names of the executions that have not ended, the oldest first."""
        for status in (ExecutionStatus.EXECUTING, ExecutionStatus.STOPPING):
            query = Query(statuses=(str(status),), descending=False)
            async for each in walk(self._records, PIPELINE_EXECUTION, query):
                yield each.name

    async def update_described(self, request: Mapping[str, Any]) -> PipelineExecution:
        """Change the name, description or parallelism of an execution.

        Raises:
            ResourceNotFound: There is no such execution.
        """
        arn = request["PipelineExecutionArn"]
        return await self._changed(arn, lambda now: replace(now, **described(request, "PipelineExecution")))

    async def stop(self, arn: str) -> PipelineExecution:
        """Ask an execution to stop: no further step begins, and running jobs are stopped.

        Raises:
            ResourceNotFound: There is no such execution.
            ValidationException: It has ended.
        """

        def stopping(now: PipelineExecution) -> PipelineExecution:
            if now.status.terminal:
                raise ValidationException(
                    f"The pipeline execution {arn!r} cannot be stopped: it is {now.status}; only one that is Executing"
                    " can be stopped"
                )
            return replace(now, status=ExecutionStatus.STOPPING)

        return await self._changed(arn, stopping)

    async def retry(self, request: Mapping[str, Any]) -> PipelineExecution:
        """Execute again the steps of an execution that have not succeeded.

        Raises:
            ResourceNotFound: There is no such execution.
            ValidationException: It has not failed, and was not stopped.
        """
        arn, token = request["PipelineExecutionArn"], request["ClientRequestToken"]

        def retried(now: PipelineExecution) -> PipelineExecution:
            if now.retry_token == token:
                return now
            if now.status not in (ExecutionStatus.FAILED, ExecutionStatus.STOPPED):
                raise ValidationException(
                    f"The pipeline execution {arn!r} cannot be retried: it is {now.status}; only one that is Failed or"
                    " Stopped can be retried"
                )
            kept = (run for run in now.steps if run.status is StepStatus.SUCCEEDED)
            again = replace(now.with_steps(kept), status=ExecutionStatus.EXECUTING, ended_ms=None, failure_reason="")
            return replace(again, retry_token=token, retries=now.retries + 1, **described(request, "PipelineExecution"))

        return await self._changed(arn, retried)

    async def update(
        self, name: str, change: Callable[[PipelineExecution], PipelineExecution], *, also: Also = lambda _: None
    ) -> PipelineExecution:
        """Change an execution and related records in one commit; return the stored execution.

        Args:
            change: Returns the changed execution, or the same object if nothing changes.
            also: Makes further changes in the same commit. Default: none.

        Raises:
            ResourceNotFound: There is no such execution.
        """

        def change_record(record: Record) -> Record | None:
            now = PipelineExecution.from_document(record.document)
            new = change(now)
            return None if new is now else record_of(PIPELINE_EXECUTION, new, status=str(new.status))

        def work(transaction: Transaction) -> Record | None:
            also(transaction)
            return transaction.update(PIPELINE_EXECUTION, name, change_record)

        record = await self._records.change(work)
        if record is None:
            raise ResourceNotFound(f"Pipeline execution {name!r} does not exist; it was deleted with its pipeline")
        return PipelineExecution.from_document(record.document)

    async def _changed(self, arn: str, change: Callable[[PipelineExecution], PipelineExecution]) -> PipelineExecution:
        execution = await self.update(self.get(arn).name, change)
        faults.point("control.pipelines.changed")
        self._wake(execution.name)
        return execution

    def _selected(
        self, execution: PipelineExecution, config: Mapping[str, Any] | None, definition: PipelineDefinition
    ) -> PipelineExecution:
        """Return a new execution with the results of the steps that are not selected."""
        if config is None:
            return execution
        names = tuple(each["StepName"] for each in config["SelectedSteps"])
        arn = config.get("SourcePipelineExecutionArn", "")
        source = self.get(arn) if arn else None
        if source is not None and source.pipeline_id != execution.pipeline_id:
            raise ValidationException(
                f"Value {arn!r} at 'selectiveExecutionConfig.sourcePipelineExecutionArn' is not allowed: it is an"
                f" execution of another pipeline than {execution.pipeline!r}"
            )
        reused = reused_steps(definition, names, source)
        return replace(execution.with_steps(reused), selected=names, source=arn)


def _start(transaction: Transaction, new: PipelineExecution) -> PipelineExecution:
    """Store a new execution, or return the one that was started with the same token."""
    record = transaction.get(PIPELINE, new.pipeline)
    pipeline = None if record is None else PipelineResource.from_document(record.document)
    if pipeline is None or pipeline.pipeline_id != new.pipeline_id:
        raise missing_pipeline(new.pipeline)
    present = transaction.get(PIPELINE_EXECUTION, new.name)
    if present is not None:
        return PipelineExecution.from_document(present.document)
    started = replace(pipeline, last_run_ms=new.created_ms)
    transaction.insert(record_of(PIPELINE_EXECUTION, new, status=str(new.status)))
    transaction.update(PIPELINE, new.pipeline, lambda _: record_of(PIPELINE, started))
    transaction.update(
        PIPELINE_VERSION,
        version_name(new.pipeline, new.version),
        lambda old: replace(old, summary={**old.summary, "execution": new.arn}),
    )
    return new


def _execution_id(pipeline: PipelineResource, token: str) -> str:
    """Return the id of the execution that a request starts; the same for the same token."""
    return hashlib.sha256(f"{pipeline.pipeline_id} {token}".encode()).hexdigest()[:_ID_LENGTH]
