"""Jobs of all kinds in one form, as the table of the page shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.control.jobs import KINDS, AnyJob
from tidemill.control.plan import TRANSFORM_LOG_GROUP
from tidemill.control.tuning.definition import definitions_of
from tidemill.core.training import SecondaryStatus, TrainingJob, instance_groups
from tidemill.core.transform import TransformJob
from tidemill.core.tuning import TuningJob
from tidemill.services.sagemaker.listing import arn_of, status_of
from tidemill.services.times import when
from tidemill.store.records.base import Record, Summary

__all__ = ["job_row", "log_group_of"]

_VALUE_MAX_CHARS = 256
_REASON_MAX_CHARS = 1024
# The SDK's own hyperparameters, e.g. where the code is: they differ in each job and say nothing about it.
_SDK_PREFIX = "sagemaker_"


def job_row(kind: str, record: Summary, *, tags: Mapping[str, str]) -> dict[str, Any]:
    """Return what the table shows of a job, without metrics.

    Args:
        kind: A key of `KINDS`.
        record: The stored job, or what is known of a damaged one.
    """
    row: dict[str, Any] = {
        "Kind": kind,
        "Name": record.name,
        "Arn": arn_of(record),
        "Status": status_of(record),
        "CreationTime": when(record.created_ms),
        "LastModifiedTime": when(record.modified_ms),
    }
    if record.is_damaged or not isinstance(record, Record):
        return row
    job: AnyJob = KINDS[kind].read(record.document)
    row |= {
        "Instances": _instances(job),
        "Tags": dict(tags),
        **({"EndTime": when(job.ended_ms)} if job.ended_ms else {}),
        **({"FailureReason": job.failure_reason[:_REASON_MAX_CHARS]} if job.failure_reason else {}),
    }
    if isinstance(job, TrainingJob):
        return row | _of_script(job)
    if isinstance(job, TuningJob):
        return row | _of_tuning(job)
    return row | ({"StartTime": when(job.started_ms)} if job.started_ms else {})


def log_group_of(job: TrainingJob | TransformJob) -> str:
    """Return the log group of a job's streams.

    Args:
        job: The job.
    """
    return job.log_group if isinstance(job, TrainingJob) else TRANSFORM_LOG_GROUP


def _of_script(job: TrainingJob) -> dict[str, Any]:
    started_ms = next((t.started_ms for t in job.transitions if t.status is SecondaryStatus.TRAINING), None)
    return {
        "SecondaryStatus": str(job.secondary_status),
        "Attempt": job.attempt,
        "HyperParameters": {
            name: value[:_VALUE_MAX_CHARS]
            for name, value in job.request.get("HyperParameters", {}).items()
            if not name.startswith(_SDK_PREFIX)
        },
        **({"StartTime": when(started_ms)} if started_ms else {}),
        **({"TuningJobName": job.tuning_job_arn.rpartition("/")[2]} if job.tuning_job_arn else {}),
    }


def _of_tuning(job: TuningJob) -> dict[str, Any]:
    counters = job.training_counters()
    most = job.config["ResourceLimits"].get("MaxNumberOfTrainingJobs")
    return {
        "EndedTrainings": sum(counters.values()) - counters.get("InProgress", 0),
        **({"MaxTrainings": most} if most else {}),
    }


def _instances(job: AnyJob) -> list[dict[str, Any]]:
    return [
        {"InstanceType": group.instance_type, "InstanceCount": len(group.hosts)}
        for resources in _resources(job)
        for group in instance_groups(resources)
    ]


def _resources(job: AnyJob) -> Sequence[Mapping[str, Any]]:
    """Return the instances of a job, or of each training of a tuning job, by the member names of ResourceConfig."""
    if isinstance(job, TuningJob):
        return [each.resources for each in definitions_of(job)]
    if isinstance(job, TrainingJob):
        return [job.run_request["ResourceConfig"]]
    return [job.request["TransformResources"]]
