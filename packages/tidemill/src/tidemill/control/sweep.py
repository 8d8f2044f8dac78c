"""Clean up at the start of the service, after jobs that ended while the last service could not clean up."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import structlog

from tidemill.control.job_archive import JobArchive
from tidemill.control.jobs import PROCESSING, TRAINING, TRANSFORM, J, Jobs
from tidemill.control.resources import ENDPOINT, ENDPOINT_REMOVAL
from tidemill.control.training.publish import Publisher
from tidemill.control.transform.driver import TransformDriver
from tidemill.core.clock import Clock
from tidemill.core.hosting import Endpoint
from tidemill.errors import StateCorrupt
from tidemill.executors.base import Executor, KnownInstance
from tidemill.store.records.base import Query, RecordStore

_log = structlog.get_logger("tidemill.sweep")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A job or endpoint whose files are still to be removed.

    Attributes:
        name: Name of the job or endpoint.
        job_id: Id of the job, or of the instances of the endpoint.
        remove: Removes the files. May take long.
    """

    name: str
    job_id: str
    remove: Callable[[], None]


async def find_leftovers(
    records: RecordStore,
    executor: Executor,
    publisher: Publisher,
    transforms: TransformDriver,
    *,
    archive: JobArchive,
    clock: Clock,
) -> list[Leftover]:
    """Find jobs that have ended and are not cleaned up, and instances that belong to no stored job or endpoint.

    Called before anything is launched: a new instance may not have its record yet.

    If the database was replaced by an older copy, a job without a row was acknowledged, and its files may be all that
    is left of it: they are kept, and `tidemill gc` removes them later. The files of an endpoint are copies of objects.

    Args:
        executor: Lists the instances, and removes their files.
        publisher: Cleans up after ended training and processing jobs.
        transforms: Cleans up after ended transform jobs.
        archive: Records which jobs are cleaned up already.
    """

    def remove_orphan(known: KnownInstance) -> None:
        is_job = known.kind != "endpoint"
        job_id = known.ref.job_id
        _log.warning("sweep.orphan", kind=known.kind, name=known.job_name, job_id=job_id, keeps_files=is_job)
        if executor.reap(job_id, keep_files=is_job):
            archive.finish(job_id, name=known.job_name, ended_ms=clock.now_ms())

    owned, complete = await _owned(records)
    recovered = await asyncio.to_thread(executor.recover, finished=archive.is_finished)
    leftovers: list[Leftover] = []
    # Instances and attempts of one job are cleaned up together.
    for job_id, known in {each.ref.job_id: each for each in recovered}.items():
        remove: Callable[[], None] | None = partial(remove_orphan, known)
        if known.kind == "training":
            remove = _clean_up_of(Jobs(records, TRAINING), known, publisher.clean_up, remove_orphan)
        elif known.kind == "processing":
            remove = _clean_up_of(Jobs(records, PROCESSING), known, publisher.clean_up, remove_orphan)
        elif known.kind == "transform":
            remove = _clean_up_of(Jobs(records, TRANSFORM), known, transforms.clean_up, remove_orphan)
        elif not complete or job_id in owned:  # a damaged endpoint may own any instance
            remove = None
        if remove is not None:
            leftovers.append(Leftover(known.job_name, job_id, remove))
    return leftovers


async def clean_up(leftovers: Iterable[Leftover]) -> None:
    """Remove the files of leftovers one by one. A failure is logged, and ends nothing but the clean-up of that job.

    A leftover that could not be removed is found again at the next start of the service.

    Args:
        leftovers: Jobs whose files remain.
    """
    for leftover in leftovers:
        try:
            await asyncio.to_thread(leftover.remove)
        except Exception:  # noqa: BLE001 - what a job left must not keep the service from cleaning up other jobs
            _log.exception("clean_up.failed", name=leftover.name, job_id=leftover.job_id)


def _clean_up_of(
    jobs: Jobs[J], known: KnownInstance, clean_up: Callable[[J], None], remove_orphan: Callable[[KnownInstance], None]
) -> Callable[[], None] | None:
    """Return how to clean up after the job of an instance; None if the job has not ended, or its row is damaged."""
    try:
        job = jobs.find(known.job_name)
    except StateCorrupt as error:
        _log.error("sweep.damaged", name=known.job_name, job_id=known.ref.job_id, reason=str(error))
        return None
    if job is None or job.job_id != known.ref.job_id:
        return partial(remove_orphan, known)
    return partial(clean_up, job) if job.status.terminal else None


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
