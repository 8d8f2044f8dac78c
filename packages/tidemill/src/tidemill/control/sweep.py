"""At the start: finish what the last server could not, between the end of a job and the end of its clean-up."""

import asyncio
import os
from pathlib import Path

import structlog

from tidemill.control.hosting import ENDPOINT
from tidemill.control.publish import PUBLISHED_FILE, Publisher
from tidemill.control.resources import ENDPOINT_REMOVAL
from tidemill.control.training import TRAINING_JOB
from tidemill.core.clock import Clock
from tidemill.core.files import read_json, write_json
from tidemill.core.hosting import Endpoint
from tidemill.core.training import TrainingJob
from tidemill.executors.base import Executor
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.records import SpecRecord
from tidemill.store.base import RecordStore

__all__ = ["sweep"]

_log = structlog.get_logger("tidemill.sweep")


async def sweep(
    records: RecordStore,
    executor: Executor,
    publisher: Publisher,
    *,
    state_dir: Path,
    clock: Clock,
) -> None:
    """Clean up after jobs that have ended, and after instances that belong to nothing any more.

    Args:
        records: What there is.
        executor: Removes what instances leave.
        publisher: Cleans up after ended jobs.
        state_dir: Of the service.
        clock: Time.
    """
    for directory in await asyncio.to_thread(_unfinished, state_dir):
        job_id = directory.ref.job_id
        try:
            spec = SpecRecord.from_json(read_json(directory.spec_file) or {}).spec
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # Whoever drives it says what is wrong; the service starts all the same.
            _log.warning("sweep.unreadable", file=str(directory.spec_file), reason=f"{type(error).__name__}: {error}")
            continue
        if spec.kind == "training":
            job = _job(records, spec.job_name, job_id)
            if job is not None and job.status.terminal:
                await asyncio.to_thread(publisher.clean_up, job)
            orphaned = job is None
        else:
            orphaned = not _serves(records, spec.job_name, job_id)
        if orphaned:
            _log.info("sweep.orphan", kind=spec.kind, name=spec.job_name, job_id=job_id)
            await asyncio.to_thread(executor.reap, job_id)
            done = {"version": 1, "name": spec.job_name, "ended_ms": clock.now_ms()}
            write_json(directory.path.parent / PUBLISHED_FILE, done)


def _unfinished(state_dir: Path) -> list[InstanceDirectory]:
    """Instances of jobs that are not through. Those that are may be very many; they cost one look each."""
    found: list[InstanceDirectory] = []
    with os.scandir(state_dir / "jobs") as jobs:
        for job in jobs:
            if not os.path.exists(f"{job.path}/{PUBLISHED_FILE}"):  # noqa: PTH110 - half the time of a Path
                found += InstanceDirectory.all_below(state_dir, job.name)
    return found


def _job(records: RecordStore, name: str, job_id: str) -> TrainingJob | None:
    record = records.get(TRAINING_JOB, name)
    job = TrainingJob.from_document(record.document) if record else None
    return job if job is not None and job.job_id == job_id else None


def _serves(records: RecordStore, name: str, instance_id: str) -> bool:
    record = records.get(ENDPOINT, name)
    if record is not None and Endpoint.from_document(record.document).instance_id == instance_id:
        return True
    return records.get(ENDPOINT_REMOVAL, instance_id) is not None
