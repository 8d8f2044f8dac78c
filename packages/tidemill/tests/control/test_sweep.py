"""The sweep at the start: what it finishes, what it leaves unchanged, and that it never prevents the start."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from separate_executor import SeparateExecutor

from tidemill.control.job_archive import JobArchive
from tidemill.control.jobs import TRAINING, TRANSFORM
from tidemill.control.resources import endpoint_record, removal_record
from tidemill.control.sweep import clean_up, find_leftovers
from tidemill.core.clock import SystemClock
from tidemill.core.hosting import Deployment, Endpoint, Instance, Variant
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.training import JobStatus, SecondaryStatus, TrainingJob
from tidemill.core.transform import TransformJob
from tidemill.instance.spec import InstanceSpec
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata, records
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore


class Publisher:
    def __init__(self) -> None:
        self.cleaned: list[str] = []
        self.broken: set[str] = set()

    def clean_up(self, job: TrainingJob | TransformJob) -> None:
        if job.name in self.broken:
            raise RecursionError("what the job left cannot be removed")
        self.cleaned.append(job.name)


class Start:
    """A store, an archive and instances on another machine, as a starting service finds them."""

    def __init__(self, root: Path, database: Database) -> None:
        self.database = database
        self.records = SqlRecordStore(database, clock=SystemClock())
        self.archive = JobArchive(root / "jobs")
        objects = ObjectStore(database, root / "objects", clock=SystemClock())
        self.executor = SeparateExecutor(root / "elsewhere", objects=objects, logs=SegmentSink(root / "logs"))
        self.publisher = Publisher()
        self.transforms = Publisher()

    def sweep(self) -> None:
        async def work() -> None:
            leftovers = await find_leftovers(
                self.records,
                self.executor,
                self.publisher,  # type: ignore[arg-type]
                self.transforms,  # type: ignore[arg-type]
                archive=self.archive,
                clock=SystemClock(),
            )
            await clean_up(leftovers)

        asyncio.run(work())

    def instance(self, job_id: str, *, name: str, kind: str = "training") -> None:
        spec = InstanceSpec(
            ref=InstanceRef(job_id, 0),
            kind=kind,
            job_name=name,
            hosts=("algo-1",),
            framework_version="2.21",
            log=StreamName("jobs", name),
        )
        self.executor.launch([spec])

    def job(self, name: str, job_id: str, *reached: SecondaryStatus) -> None:
        job = TrainingJob(name=name, arn="arn", job_id=job_id, request={}, created_ms=1, log_streams=("s",))
        for status in (SecondaryStatus.STARTING, *reached):
            job = job.enter(status, at_ms=1, message="")
        asyncio.run(self.records.insert(TRAINING.write(job)))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        yield Start(tmp_path, database)


def test_ended_jobs_are_cleaned_up_and_running_ones_are_not(start: Start) -> None:
    for job_id, name in (("aa", "ended"), ("bb", "running")):
        start.instance(job_id, name=name)
    start.job("ended", "aa", SecondaryStatus.COMPLETED)
    start.job("running", "bb")
    start.sweep()
    assert (start.publisher.cleaned, start.executor.reaped) == (["ended"], [])


def test_what_one_job_left_keeps_the_service_neither_from_starting_nor_from_cleaning_up_others(start: Start) -> None:
    for job_id in ("aa", "bb", "cc"):
        start.instance(job_id, name=job_id)
        start.job(job_id, job_id, SecondaryStatus.COMPLETED)
    start.publisher.broken = {"aa", "bb"}
    start.sweep()
    assert start.publisher.cleaned == ["cc"]
    start.publisher.broken = {"bb"}
    start.sweep()
    assert start.publisher.cleaned == ["cc", "aa", "cc"], "the next start tries again"


def test_an_orphan_whose_files_cannot_be_removed_is_not_marked_as_finished(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.instance("aa", name="gone")
    monkeypatch.setattr(start.executor, "reap", lambda job_id: False)
    start.sweep()
    assert not start.archive.is_finished("aa")


@pytest.mark.parametrize("kind", ["training", "endpoint"])
def test_an_instance_that_belongs_to_nothing_is_ended_once(kind: str, start: Start) -> None:
    start.instance("aa", name="gone", kind=kind)
    start.sweep()
    assert start.executor.reaped == ["aa"]
    # The files of a job may be all that is left of it; those of an endpoint are copies.
    assert start.executor.kept == (["aa"] if kind == "training" else [])
    assert start.archive.is_finished("aa")
    start.sweep()
    assert start.executor.reaped == ["aa"]


def test_an_endpoint_whose_name_another_has_taken_is_left_to_drain(start: Start) -> None:
    for instance_id in ("aa", "bb", "cc"):
        start.instance(instance_id, name="digits", kind="endpoint")
    leaving, serving = (endpoint(job_id) for job_id in ("aa", "bb"))
    asyncio.run(start.records.insert(removal_record(leaving)))
    asyncio.run(start.records.insert(endpoint_record(serving)))
    start.sweep()
    assert start.executor.reaped == ["cc"]


def test_damaged_records_end_no_start_and_none_of_their_instances(start: Start) -> None:
    start.instance("aa", name="damaged")
    start.instance("bb", name="digits", kind="endpoint")
    start.job("damaged", "aa", SecondaryStatus.COMPLETED)
    asyncio.run(start.records.insert(endpoint_record(endpoint("bb"))))
    start.database.write_sync(lambda c: c.execute(records.update().values(document="{}")) and None)
    start.sweep()
    assert (start.publisher.cleaned, start.executor.reaped) == ([], [])


def endpoint(job_id: str) -> Endpoint:
    instance = Instance(job_id=job_id, log_stream="v/0", created_ms=1)
    variant = Variant(request={"VariantName": "v"}, model={}, instances=(instance,))
    serving = Deployment(config_name="digits", variants=(variant,), begun_ms=1)
    return Endpoint(name="digits", arn="arn", endpoint_id=f"e{job_id}", created_ms=1, serving=serving)


def test_a_job_that_is_finished_is_not_looked_at(start: Start) -> None:
    start.instance("aa", name="done")
    start.archive.finish("aa", name="done", ended_ms=1)
    start.sweep()
    assert (start.publisher.cleaned, start.executor.reaped) == ([], [])


def test_ended_transform_jobs_are_cleaned_up_and_running_ones_are_not(start: Start) -> None:
    for name, job_id, status in (
        ("ended", "00aa", JobStatus.COMPLETED),
        ("running", "00bb", JobStatus.IN_PROGRESS),
    ):
        job = TransformJob(
            name=name, arn="arn", job_id=job_id, request={}, model={}, created_ms=1, log_streams=("s",), status=status
        )
        asyncio.run(start.records.insert(TRANSFORM.write(job)))
        start.instance(job_id, name=name, kind="transform")
    start.instance("00cc", name="gone", kind="transform")
    start.sweep()
    assert start.transforms.cleaned == ["ended"]
    assert start.executor.reaped == ["00cc"]
