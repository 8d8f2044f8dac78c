"""Clean up at the start of the service, after jobs that ended while the last service could not clean up."""

import asyncio
from dataclasses import replace

import structlog

from tidemill.control.job_archive import JobArchive
from tidemill.control.jobs import TRAINING, TRANSFORM, J, Jobs
from tidemill.control.publish import Publisher
from tidemill.control.resources import ENDPOINT, ENDPOINT_REMOVAL
from tidemill.control.transform.driver import TransformDriver
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint
from tidemill.executors.base import Executor
from tidemill.store.records.base import Query, RecordStore

__all__ = ["sweep"]

_log = structlog.get_logger("tidemill.sweep")


async def sweep(
    records: RecordStore,
    executor: Executor,
    publisher: Publisher,
    transforms: TransformDriver,
    *,
    archive: JobArchive,
    clock: Clock,
) -> None:
    """Clean up after jobs that have ended, and end instances that belong to no stored job or endpoint.

    If the database was replaced by an older copy, a job without a row was acknowledged, and its files may be all that
    is left of it: they are kept, and `tidemill gc` removes them later. The files of an endpoint are copies of objects.

    Args:
        records: Stores the jobs and endpoints.
        executor: Lists the instances, and removes their files.
        publisher: Cleans up after ended training jobs.
        transforms: Cleans up after ended transform jobs.
        archive: Records which jobs are cleaned up already.
        clock: Provides the current time.
    """
    owned = await _owned(records)
    recovered = await asyncio.to_thread(executor.recover, finished=archive.is_finished)
    # Instances and attempts of one job are cleaned up together.
    for job_id, known in {each.ref.job_id: each for each in recovered}.items():
        if known.kind == "training":
            job = _found(Jobs(records, TRAINING), known.job_name, job_id)
            if job is not None and job.status.terminal:
                await asyncio.to_thread(publisher.clean_up, job)
            orphaned = job is None
        elif known.kind == "transform":
            transform = _found(Jobs(records, TRANSFORM), known.job_name, job_id)
            if transform is not None and transform.status.terminal:
                await asyncio.to_thread(transforms.clean_up, transform)
            orphaned = transform is None
        else:
            orphaned = job_id not in owned
        if orphaned:
            is_job = known.kind != "endpoint"
            _log.warning("sweep.orphan", kind=known.kind, name=known.job_name, job_id=job_id, keeps_files=is_job)
            await asyncio.to_thread(executor.reap, job_id, keep_files=is_job)
            archive.finish(job_id, name=known.job_name, ended_ms=clock.now_ms())


def _found(jobs: Jobs[J], name: str, job_id: str) -> J | None:
    job = jobs.find(name)
    return job if job is not None and job.job_id == job_id else None


async def _owned(records: RecordStore) -> set[str]:
    """Return the names of the directories that belong to endpoints, including endpoints that are being deleted."""
    owned: set[str] = set()
    for kind in (ENDPOINT, ENDPOINT_REMOVAL):
        query = Query(limit=100)
        while True:
            page = await records.list(kind, query)
            for record in page.records:
                owned |= Endpoint.from_document(record.document).owns
            if page.next_token is None:
                break
            query = replace(query, after=page.next_token)
    return owned
