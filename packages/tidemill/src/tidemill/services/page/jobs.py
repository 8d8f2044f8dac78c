"""ListJobs and DescribeJob: jobs of all kinds in one form.

AWS's lists have names and states only: a table that also shows instances, hyperparameters, tags and metrics would need
several more requests for each row. AWS's descriptions have neither the request nor, for most kinds, the phases.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemill.control.jobs import KINDS, JobKind
from tidemill.control.slots import Slots
from tidemill.control.tags import Tags
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.core.names import sagemaker_arn
from tidemill.core.training import TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.errors import ValidationException
from tidemill.services.operations import Operations
from tidemill.services.page.job_rows import job_row, log_group_of
from tidemill.services.times import milliseconds, when
from tidemill.store.records.base import Query, Record, RecordStore, Summary
from tidemill.wire.exchange import Context

__all__ = ["JobOperations", "JobResources"]

_DEFAULT_ROWS = 500
_ROWS_AT_ONCE = 50
_METRICS_PAUSE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResources:
    """What the operations read.

    Attributes:
        metrics: The metrics in the logs of training jobs.
        slots: Has the queue of jobs that wait for instances.
    """

    records: RecordStore
    tags: Tags
    metrics: TrainingMetrics
    slots: Slots


class JobOperations(Operations):
    """List and describe jobs."""

    def __init__(self, resources: JobResources) -> None:
        self._from = resources

    async def list_jobs(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return one page of the jobs of a kind: the newest first, or with ModifiedAfter those changed first."""
        kind = KINDS[request["Kind"]]
        changed_ms = milliseconds(request.get("ModifiedAfter"))
        query = Query(
            sort_by="created" if changed_ms is None else "modified",
            descending=changed_ms is None,
            modified_after_ms=changed_ms,
            statuses=(request["StatusEquals"],) if "StatusEquals" in request else (),
            limit=request.get("MaxResults", _DEFAULT_ROWS),
            after=request.get("NextToken"),
        )
        try:
            page = await self._from.records.list(kind.kind, query)
        except ValueError as error:
            raise ValidationException(f"Value {query.after!r} at 'nextToken' is not valid: {error}") from error
        action = f"sagemaker:Describe{kind.resource}"
        rows: list[dict[str, Any]] = []
        for number, each in enumerate((*page.records, *page.damaged), start=1):
            if context.permits(action, each.summary.get("arn", "")):
                rows.append(await self._row(request["Kind"], each, context))
            if number % _ROWS_AT_ONCE == 0:
                await asyncio.sleep(0)  # other requests come between
        return {
            "Jobs": rows,
            "Queue": _queue(self._from.slots, kind, context),
            **({"NextToken": page.next_token} if page.next_token else {}),
        }

    async def describe_job(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return a job with its request, its phases and its log streams."""
        kind = KINDS[request["Kind"]]
        record = self._from.records.get(kind.kind, request["Name"])
        if record is None:
            raise kind.error(kind.missing.format(name=request["Name"]))
        job = kind.read(record.document)
        reply: dict[str, Any] = {
            "Job": await self._row(request["Kind"], record, context),
            "Request": json.dumps(job.request),
            "Queue": [each for each in _queue(self._from.slots, kind, context) if each["Name"] == job.name],
        }
        if isinstance(job, TrainingJob | TransformJob):
            reply |= {"LogGroup": log_group_of(job), "LogStreams": list(job.log_streams)}
        if isinstance(job, TransformJob):
            reply["LogStreams"].append(job.data_log_stream)
        if isinstance(job, TrainingJob):
            reply |= _of_script(job)
        return reply

    async def _row(self, kind: str, record: Summary, context: Context) -> dict[str, Any]:
        arn = record.summary.get("arn", "")
        shows_tags = not record.is_damaged and context.permits("sagemaker:ListTags", arn)
        row = job_row(kind, record, tags=self._from.tags.of(arn) if shows_tags else {})
        if kind == "training" and isinstance(record, Record):
            job = TrainingJob.from_document(record.document)
            row["Metrics"] = dict(await self._from.metrics.latest(job, pause_s=_METRICS_PAUSE_S))
        return row


def _queue(slots: Slots, kind: JobKind[Any], context: Context) -> list[dict[str, Any]]:
    """Return the waiting jobs of a kind that the caller may see, with their places among all jobs."""
    action = f"sagemaker:Describe{kind.resource}"
    return [
        {"Name": each.holder.name, "Place": place}
        for place, each in enumerate(slots.queue, start=1)
        if each.holder.kind == kind.kind
        and context.permits(action, sagemaker_arn(each.holder.kind, each.holder.name, region=context.region))
    ]


def _of_script(job: TrainingJob) -> dict[str, Any]:
    """Return what only jobs have that run a script."""
    return {
        "Phases": [
            {
                "Status": str(phase.status),
                "StartTime": when(phase.started_ms),
                "Message": phase.message,
                **({"EndTime": when(phase.ended_ms)} if phase.ended_ms is not None else {}),
            }
            for phase in job.transitions
        ],
        "ModelArtifacts": job.model_artifacts,
        "Record": json.dumps(job.record),
    }
