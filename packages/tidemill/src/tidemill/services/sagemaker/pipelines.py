"""Pipelines and their executions on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.pipelines.executions import Executions
from tidemill.control.pipelines.expressions import text_of
from tidemill.control.pipelines.pipelines import Pipelines
from tidemill.control.pipelines.step_types import JOBS
from tidemill.core.pipelines import PipelineExecution, PipelineResource, StepRun
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import arn_of, page_of_rows, page_reply, row_of, status_of
from tidemill.services.times import milliseconds, when
from tidemill.store.records.base import Query, Record, Summary
from tidemill.wire.exchange import Context

_STEPS_PAGE = 20


class PipelineHandlers(Operations):
    """Handlers for pipelines and their executions."""

    def __init__(self, pipelines: Pipelines, executions: Executions) -> None:
        self._pipelines = pipelines
        self._executions = executions

    async def create_pipeline(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        pipeline = await self._pipelines.create(request, creator=context.caller.arn, tags=tags)
        return {"PipelineArn": pipeline.arn}

    async def update_pipeline(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        pipeline = await self._pipelines.update(request, modifier=context.caller.arn)
        return {"PipelineArn": pipeline.arn, "PipelineVersionId": pipeline.version}

    async def describe_pipeline(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        record = self._pipelines.record(request["PipelineName"])
        version = request.get("PipelineVersionId", record.document["version"])
        definition = self._pipelines.version(record.name, version).document["definition"]
        return {**pipeline_description(record), "PipelineDefinition": definition}

    async def delete_pipeline(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"PipelineArn": (await self._pipelines.delete(request["PipelineName"])).arn}

    async def list_pipelines(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if request.get("ManagedBy") == "AWS":
            return {"PipelineSummaries": []}
        found, token = await self._pipelines.list(_query(request), prefix=request.get("PipelineNamePrefix", ""))
        return page_reply("PipelineSummaries", [pipeline_summary(each) for each in found], token)

    async def list_pipeline_versions(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        pipeline = self._pipelines.get(request["PipelineName"])
        found, token = await self._pipelines.versions(pipeline.name, _query(request))
        return page_reply("PipelineVersionSummaries", [_version_summary(each) for each in found], token)

    async def start_pipeline_execution(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        caller = context.caller
        execution = await self._executions.start(request, key_id=caller.access_key_id, starter=caller.arn)
        return {"PipelineExecutionArn": execution.arn}

    async def describe_pipeline_execution(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return execution_description(self._executions.record(request["PipelineExecutionArn"]))

    async def describe_pipeline_definition_for_execution(
        self, request: dict[str, Any], context: Context
    ) -> Mapping[str, Any]:
        execution = self._executions.get(request["PipelineExecutionArn"])
        version = self._pipelines.version(execution.pipeline, execution.version)
        return {"PipelineDefinition": version.document["definition"], "CreationTime": when(version.created_ms)}

    async def list_pipeline_executions(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        pipeline = self._pipelines.get(request["PipelineName"])
        found, token = await self._executions.list(pipeline.name, _query(request))
        return page_reply("PipelineExecutionSummaries", [_listed_execution(each) for each in found], token)

    async def list_pipeline_execution_steps(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        if "PipelineExecutionArn" not in request:
            raise ValidationException("PipelineExecutionArn is missing; give the ARN of an execution")
        execution = self._executions.get(request["PipelineExecutionArn"])
        definition = self._pipelines.definition(execution.pipeline, execution.version)
        order = request.get("SortOrder", "Descending")
        runs = execution.steps if order == "Ascending" else execution.steps[::-1]
        page, token = page_of_rows(runs, request, listing=f"{execution.arn}:{order}", size=_STEPS_PAGE)
        return {"PipelineExecutionSteps": [_step(run, definition.steps[run.name]) for run in page], **token}

    async def list_pipeline_parameters_for_execution(
        self, request: dict[str, Any], context: Context
    ) -> Mapping[str, Any]:
        record = self._executions.record(request["PipelineExecutionArn"])
        listing = f"{record.summary['arn']}:parameters"
        page, token = page_of_rows(parameters_of(record), request, listing=listing, size=_STEPS_PAGE)
        return {"PipelineParameters": page, **token}

    async def update_pipeline_execution(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"PipelineExecutionArn": (await self._executions.update_described(request)).arn}

    async def stop_pipeline_execution(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"PipelineExecutionArn": (await self._executions.stop(request["PipelineExecutionArn"])).arn}

    async def retry_pipeline_execution(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"PipelineExecutionArn": (await self._executions.retry(request)).arn}


def _query(request: Mapping[str, Any]) -> Query:
    return Query(
        sort_by="created" if request.get("SortBy", "CreationTime") == "CreationTime" else "name",
        descending=request.get("SortOrder", "Descending") == "Descending",
        created_after_ms=milliseconds(request.get("CreatedAfter")),
        created_before_ms=milliseconds(request.get("CreatedBefore")),
        limit=request.get("MaxResults", 10),
        after=request.get("NextToken"),
    )


def _user(arn: str) -> dict[str, Any]:
    return {"IamIdentity": {"Arn": arn}}


def _parallelism(most: int | None) -> dict[str, Any]:
    return {} if most is None else {"ParallelismConfiguration": {"MaxParallelExecutionSteps": most}}


def _experiment(execution: PipelineExecution) -> dict[str, str]:
    return dict(zip(("ExperimentName", "TrialName"), execution.experiment, strict=False))


def _selection(execution: PipelineExecution) -> dict[str, Any]:
    if not execution.selected:
        return {}
    source = {"SourcePipelineExecutionArn": execution.source} if execution.source else {}
    return {**source, "SelectedSteps": [{"StepName": name} for name in execution.selected]}


def pipeline_description(record: Record) -> dict[str, Any]:
    """Return the description of a pipeline without its definition.

    Args:
        record: The stored pipeline.
    """
    pipeline = PipelineResource.from_document(record.document)
    return {
        **row_of("Pipeline", record, status=False),
        "PipelineDisplayName": pipeline.display_name or pipeline.name,
        "PipelineDescription": pipeline.description,
        "RoleArn": pipeline.role,
        "PipelineStatus": "Active",
        "CreatedBy": _user(pipeline.creator),
        "LastModifiedBy": _user(pipeline.modifier),
        **({"LastRunTime": when(pipeline.last_run_ms)} if pipeline.last_run_ms else {}),
        **_parallelism(pipeline.max_parallel),
    }


def execution_description(record: Record) -> dict[str, Any]:
    """Return the description of an execution.

    Args:
        record: The stored execution.
    """
    execution = PipelineExecution.from_document(record.document)
    optional = {"PipelineExperimentConfig": _experiment(execution), "SelectiveExecutionConfig": _selection(execution)}
    return {
        **execution_summary(record),
        "PipelineArn": execution.pipeline_arn,
        "CreatedBy": _user(execution.starter),
        "LastModifiedBy": _user(execution.starter),
        "PipelineVersionId": execution.version,
        **_parallelism(execution.max_parallel),
        **{name: value for name, value in optional.items() if value},
    }


def execution_summary(execution: Summary) -> dict[str, Any]:
    """Return what the summary of an execution has of its description.

    Args:
        execution: The summary.
    """
    shown = execution.summary
    summary = {
        "PipelineExecutionArn": arn_of(execution),
        "PipelineExecutionStatus": status_of(execution),
        "CreationTime": when(execution.created_ms),
        "LastModifiedTime": when(execution.modified_ms),
    }
    if execution.is_damaged:
        return summary
    optional = {
        "PipelineExecutionDescription": shown["description"],
        # SageMaker, too, makes a name of the time.
        "PipelineExecutionDisplayName": shown["display_name"] or f"execution-{execution.created_ms}",
        "FailureReason": shown["failure_reason"],
    }
    return summary | {name: value for name, value in optional.items() if value}


def parameters_of(record: Record) -> list[dict[str, str]]:
    """Return the parameters of an execution by name, as lists show them.

    Args:
        record: The stored execution.
    """
    parameters = sorted(record.document["parameters"].items())
    return [{"Name": name, "Value": text_of(value)} for name, value in parameters]


def pipeline_summary(pipeline: Summary) -> dict[str, Any]:
    """Return what lists show of a pipeline.

    Args:
        pipeline: The summary.
    """
    shown = pipeline.summary
    row = row_of("Pipeline", pipeline, status=False)
    if pipeline.is_damaged:
        return row
    return {
        **row,
        "PipelineDisplayName": shown["display_name"] or pipeline.name,
        "PipelineDescription": shown["description"],
        "RoleArn": shown["role"],
        **({"LastExecutionTime": when(shown["last_run_ms"])} if shown["last_run_ms"] else {}),
    }


def _version_summary(version: Summary) -> dict[str, Any]:
    summary = {"PipelineArn": arn_of(version), "CreationTime": when(version.created_ms)}
    if version.is_damaged:
        return summary
    summary["PipelineVersionId"] = version.summary["version"]
    last = version.summary["execution"]
    return summary | ({"LastExecutionPipelineExecutionArn": last} if last else {})


def _listed_execution(execution: Summary) -> dict[str, Any]:
    """Return what lists show of an execution, which is named otherwise than in descriptions."""
    shown = execution_summary(execution)
    shown["StartTime"] = shown.pop("CreationTime")
    del shown["LastModifiedTime"]
    reason = shown.pop("FailureReason", "")
    return shown | ({"PipelineExecutionFailureReason": reason} if reason else {})


def _step(run: StepRun, step: Any) -> dict[str, Any]:
    optional = {
        "StepDisplayName": step.display_name,
        "StepDescription": step.description,
        "FailureReason": run.failure_reason,
        "Metadata": _metadata(run, step.type),
        "CacheHitResult": {"SourcePipelineExecutionArn": run.cached_from} if run.cached_from else {},
        "SelectiveExecutionResult": {"SourcePipelineExecutionArn": run.selected_from} if run.selected_from else {},
    }
    return {
        "StepName": run.name,
        "StartTime": when(run.started_ms),
        "StepStatus": str(run.status),
        "AttemptCount": run.attempt,
        **({"EndTime": when(run.ended_ms)} if run.ended_ms else {}),
        **{name: value for name, value in optional.items() if value},
    }


def _metadata(run: StepRun, kind: str) -> dict[str, Any]:
    if kind == "Condition":
        return {"Condition": {"Outcome": run.outcome}} if run.outcome else {}
    if kind == "Fail":
        return {"Fail": {"ErrorMessage": run.message}}
    return {JOBS[kind].shown_as or JOBS[kind].resource: {"Arn": run.arn}} if run.arn else {}
