"""Batch transform jobs on the wire."""

from collections.abc import Mapping
from typing import Any

from tidemill.control.transform.jobs import TransformJobs
from tidemill.core.transform import TransformJob
from tidemill.services.sagemaker.listing import query_of
from tidemill.services.times import when
from tidemill.store.records.base import Record
from tidemill.wire.exchange import Context, Handler

__all__ = ["TransformHandlers"]

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


class TransformHandlers:
    """Create, describe, list and stop batch transform jobs."""

    def __init__(self, jobs: TransformJobs) -> None:
        self._jobs = jobs

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "CreateTransformJob": self.create,
            "DescribeTransformJob": self.describe,
            "ListTransformJobs": self.list,
            "StopTransformJob": self.stop,
        }

    async def create(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        tags = request.pop("Tags", [])
        return {"TransformJobArn": (await self._jobs.create(request, tags=tags)).arn}

    async def describe(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        job = self._jobs.get(request["TransformJobName"])
        return {
            **{member: job.request[member] for member in _ECHOED if member in job.request},
            **_state(job),
            **({"TransformStartTime": when(job.started_ms)} if job.started_ms else {}),
        }

    async def list(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        records, token = await self._jobs.list(query_of(request))
        reply: dict[str, Any] = {"TransformJobSummaries": [_summary(record) for record in records]}
        return reply | ({"NextToken": token} if token else {})

    async def stop(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        await self._jobs.stop(request["TransformJobName"])
        return {}


def _summary(record: Record) -> dict[str, Any]:
    job = TransformJob.from_document(record.document)
    return {**_state(job), "LastModifiedTime": when(record.modified_ms)}


def _state(job: TransformJob) -> dict[str, Any]:
    return {
        "TransformJobName": job.name,
        "TransformJobArn": job.arn,
        "TransformJobStatus": str(job.status),
        "CreationTime": when(job.created_ms),
        **({"TransformEndTime": when(job.ended_ms)} if job.ended_ms else {}),
        **({"FailureReason": job.failure_reason} if job.failure_reason and job.ended_ms else {}),
    }
