"""Clean up at the start of the service, after jobs that ended while the last service could not clean up."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import structlog

from tidemill.control.job_archive import JobArchive
from tidemill.control.jobs import TRAINING, TRANSFORM, J, Jobs
from tidemill.control.publish import Publisher
from tidemill.control.resources import ENDPOINT, ENDPOINT_REMOVAL
from tidemill.control.transform.driver import TransformDriver
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint
from tidemill.errors import StateCorrupt
from tidemill.executors.base import Executor, KnownInstance
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
    owned, complete = await _owned(records)
    recovered = await asyncio.to_thread(executor.recover, finished=archive.is_finished)
    # Instances and attempts of one job are cleaned up together.
    for job_id, known in {each.ref.job_id: each for each in recovered}.items():
        if known.kind == "training":
            orphaned = await _clean_up(Jobs(records, TRAINING), known, publisher.clean_up)
        elif known.kind == "transform":
            orphaned = await _clean_up(Jobs(records, TRANSFORM), known, transforms.clean_up)
        else:
            # A damaged endpoint may own any instance.
            orphaned = complete and job_id not in owned
        if orphaned:
            is_job = known.kind != "endpoint"
            _log.warning("sweep.orphan", kind=known.kind, name=known.job_name, job_id=job_id, keeps_files=is_job)
            await asyncio.to_thread(executor.reap, job_id, keep_files=is_job)
            archive.finish(job_id, name=known.job_name, ended_ms=clock.now_ms())


async def _clean_up(jobs: Jobs[J], known: KnownInstance, clean_up: Callable[[J], None]) -> bool:
    """Clean up after the job of an instance if the job has ended. Return whether there is no such job."""
    try:
        job = jobs.find(known.job_name)
    except StateCorrupt as error:
        _log.error("sweep.damaged", name=known.job_name, job_id=known.ref.job_id, reason=str(error))
        return False
    if job is None or job.job_id != known.ref.job_id:
        return True
    if job.status.terminal:
        await asyncio.to_thread(clean_up, job)
    return False


async def _owned(records: RecordStore) -> tuple[set[str], bool]:
    """Return the names of the directories that belong to endpoints, and whether all endpoints could be read.

    Includes endpoints that are being deleted.
    """
    owned: set[str] = set()
    complete = True
    for kind in (ENDPOINT, ENDPOINT_REMOVAL):
        query = Query(limit=100)
        while True:
            page = await records.list(kind, query)
            for record in page.records:
                owned |= Endpoint.from_document(record.document).owns
            complete = complete and not page.damaged
            if page.next_token is None:
                break
            query = replace(query, after=page.next_token)
    return owned, complete
