"""Batch transform jobs on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.transform.jobs import TransformJobs
from tidemill.core.transform import TransformJob
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import page_reply, query_of, row_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary
from tidemill.wire.exchange import Context

# Members of CreateTransformJob that DescribeTransformJob returns unchanged.
_ECHOED = (
    *("ModelName", "MaxConcurrentTransforms", "ModelClientConfig", "MaxPayloadInMB", "BatchStrategy"),
    *("Environment", "TransformInput", "TransformOutput", "DataCaptureConfig", "TransformResources"),
    *("DataProcessing", "ExperimentConfig"),
)


class TransformHandlers(Operations):
    """Create, describe, list and stop batch transform jobs."""

    def __init__(self, jobs: TransformJobs) -> None:
        self._jobs = jobs

    async def create_transform_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"TransformJobArn": (await self._jobs.create(request, tags=tags)).arn}

    async def describe_transform_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return transform_description(self._jobs.record(request["TransformJobName"]))

    async def list_transform_jobs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        jobs, token = await self._jobs.list(query_of(request))
        return page_reply("TransformJobSummaries", [_summary(job) for job in jobs], token)

    async def stop_transform_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.stop(request["TransformJobName"])
        return {}


def _summary(job: Summary) -> dict[str, Any]:
    return {**row_of("TransformJob", job), **({} if job.is_damaged else _end(job.summary))}


def transform_description(record: Record) -> dict[str, Any]:
    """Return the description of a transform job.

    Args:
        record: The stored job.
    """
    job = TransformJob.from_document(record.document)
    return {
        **{member: job.request[member] for member in _ECHOED if member in job.request},
        **row_of("TransformJob", record, changes=False),
        **({"TransformStartTime": when(job.started_ms)} if job.started_ms else {}),
        **_end(job.to_summary()),
    }


def _end(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a job that has ended."""
    ended_ms, reason = summary["ended_ms"], summary["failure_reason"]
    return {
        **({"TransformEndTime": when(ended_ms)} if ended_ms else {}),
        **({"FailureReason": reason} if reason and ended_ms else {}),
    }
