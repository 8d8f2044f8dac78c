"""At the start: finish what the last server could not, between the end of a job and the end of its clean-up."""

import asyncio
from pathlib import Path

import structlog

from tidemill.control.credentials import Credentials
from tidemill.control.hosting import ENDPOINT
from tidemill.control.publish import PUBLISHED_FILE, Publisher
from tidemill.control.training import TRAINING_JOB
from tidemill.core.files import read_json
from tidemill.core.hosting import Endpoint
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Executor
from tidemill.executors.directory import InstanceDirectory
from tidemill.store.base import RecordStore

__all__ = ["sweep"]

_log = structlog.get_logger("tidemill.sweep")


async def sweep(
    records: RecordStore, executor: Executor, publisher: Publisher, credentials: Credentials, *, state_dir: Path
) -> None:
    """Clean up after jobs that have ended, and remove directories that belong to nothing any more.

    Args:
        records: What there is.
        executor: Removes directories.
        publisher: Cleans up after ended jobs.
        credentials: Whose temporary keys end with their job.
        state_dir: Of the service.
    """
    for directory in InstanceDirectory.all_below(state_dir):
        job_id = directory.ref.job_id
        if (directory.path.parent / PUBLISHED_FILE).exists():
            continue
        spec: dict[str, str] = read_json(directory.spec_file) or {}
        if spec["kind"] == "training":
            job = _job(records, spec["job_name"], job_id)
            if job is not None and job.status.terminal:
                await credentials.end(job_id)
                await asyncio.to_thread(publisher.clean_up, job)
            orphaned = job is None
        else:
            orphaned = not _serves(records, spec["job_name"], job_id)
        if orphaned:
            _log.warning("sweep.orphan", kind=spec["kind"], name=spec["job_name"], job_id=job_id)
            await asyncio.to_thread(executor.reap, job_id)


def _job(records: RecordStore, name: str, job_id: str) -> TrainingJob | None:
    record = records.get(TRAINING_JOB, name)
    job = TrainingJob.from_document(record.document) if record else None
    return job if job is not None and job.job_id == job_id else None


def _serves(records: RecordStore, name: str, instance_id: str) -> bool:
    record = records.get(ENDPOINT, name)
    return record is not None and Endpoint.from_document(record.document).instance_id == instance_id
