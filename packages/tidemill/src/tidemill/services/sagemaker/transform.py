"""Batch transform jobs on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.transform.jobs import TransformJobs
from tidemill.core.transform import TransformJob
from tidemill.services.operations import Operations
from tidemill.services.sagemaker.listing import arn_of, query_of, status_of
from tidemill.services.times import when
from tidemill.store.records.base import Summary
from tidemill.wire.exchange import Context

# Members of CreateTransformJob that DescribeTransformJob returns unchanged.
_ECHOED = (
    "ModelName",
    "MaxConcurrentTransforms",
    "ModelClientConfig",
    "MaxPayloadInMB",
    "BatchStrategy",
    "Environment",
    "TransformInput",
    "TransformOutput",
    "DataCaptureConfig",
    "TransformResources",
    "DataProcessing",
    "ExperimentConfig",
)


class TransformHandlers(Operations):
    """Create, describe, list and stop batch transform jobs."""

    def __init__(self, jobs: TransformJobs) -> None:
        self._jobs = jobs

    async def create_transform_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"TransformJobArn": (await self._jobs.create(request, tags=tags)).arn}

    async def describe_transform_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return transform_description(self._jobs.get(request["TransformJobName"]))

    async def list_transform_jobs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        jobs, token = await self._jobs.list(query_of(request))
        reply: dict[str, Any] = {"TransformJobSummaries": [_summary(job) for job in jobs]}
        return reply | ({"NextToken": token} if token else {})

    async def stop_transform_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.stop(request["TransformJobName"])
        return {}


def _summary(job: Summary) -> dict[str, Any]:
    modified = {"LastModifiedTime": when(job.modified_ms)}
    if not job.is_damaged:
        return {**_state(job, job.summary), **modified}
    return {
        "TransformJobName": job.name,
        "TransformJobArn": arn_of(job),
        "TransformJobStatus": status_of(job),
        "CreationTime": when(job.created_ms),
        **modified,
    }


def transform_description(job: TransformJob) -> dict[str, Any]:
    """Return the description of a transform job.

    Args:
        job: The job.
    """
    return {
        **{member: job.request[member] for member in _ECHOED if member in job.request},
        **_state(job, job.to_summary()),
        **({"TransformStartTime": when(job.started_ms)} if job.started_ms else {}),
    }


def _state(job: TransformJob | Summary, summary: Mapping[str, Any]) -> dict[str, Any]:
    ended_ms, failure_reason = summary["ended_ms"], summary["failure_reason"]
    return {
        "TransformJobName": job.name,
        "TransformJobArn": summary["arn"],
        "TransformJobStatus": str(job.status),
        "CreationTime": when(job.created_ms),
        **({"TransformEndTime": when(ended_ms)} if ended_ms else {}),
        **({"FailureReason": failure_reason} if failure_reason and ended_ms else {}),
    }
