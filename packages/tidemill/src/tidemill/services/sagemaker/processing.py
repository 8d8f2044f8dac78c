"""Processing jobs on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.processing.jobs import ProcessingJobs
from tidemill.core.processing import ProcessingJob
from tidemill.core.training import SecondaryStatus
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import page_reply, query_of, row_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

# Members of CreateProcessingJob that DescribeProcessingJob returns unchanged.
_ECHOED = (
    *("ProcessingInputs", "ProcessingOutputConfig", "ProcessingResources", "StoppingCondition"),
    *("AppSpecification", "Environment", "NetworkConfig", "RoleArn", "ExperimentConfig"),
)
_DEFAULT_RUNTIME_S = 86400


class ProcessingHandlers(Operations):
    """Create, describe, list, stop and delete processing jobs."""

    def __init__(self, jobs: ProcessingJobs) -> None:
        self._jobs = jobs

    async def create_processing_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"ProcessingJobArn": (await self._jobs.create(request, tags=tags)).arn}

    async def describe_processing_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return processing_description(self._jobs.record(request["ProcessingJobName"]))

    async def list_processing_jobs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        jobs, token = await self._jobs.list(query_of(request))
        return page_reply("ProcessingJobSummaries", [_summary(job) for job in jobs], token)

    async def stop_processing_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.stop(request["ProcessingJobName"])
        return {}

    async def delete_processing_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.delete(request["ProcessingJobName"])
        return {}


def _summary(job: Summary) -> dict[str, Any]:
    return {**row_of("ProcessingJob", job), **({} if job.is_damaged else _end(job.summary))}


def processing_description(record: Record) -> dict[str, Any]:
    """Return the description of a processing job.

    Args:
        record: The stored job.
    """
    job = ProcessingJob.from_document(record.document)
    started_ms = next((t.started_ms for t in job.transitions if t.status is SecondaryStatus.TRAINING), None)
    return {
        "StoppingCondition": {"MaxRuntimeInSeconds": _DEFAULT_RUNTIME_S},
        **{member: job.request[member] for member in _ECHOED if member in job.request},
        **row_of("ProcessingJob", record),
        **({"ProcessingStartTime": when(started_ms)} if started_ms else {}),
        **_end(job.to_summary()),
    }


def _end(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a job that has ended."""
    ended_ms, reason, message = summary["ended_ms"], summary["failure_reason"], summary["exit_message"]
    return {
        **({"ProcessingEndTime": when(ended_ms)} if ended_ms else {}),
        **({"FailureReason": reason} if reason else {}),
        **({"ExitMessage": message} if message else {}),
    }
