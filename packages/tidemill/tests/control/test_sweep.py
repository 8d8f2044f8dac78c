"""The sweep at the start: what it finishes, what it leaves alone, and that it never keeps the service from starting."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.publish import PUBLISHED_FILE
from tidemill.control.resources import endpoint_record, job_record, removal_record
from tidemill.control.sweep import sweep
from tidemill.core.clock import SystemClock
from tidemill.core.files import read_json, write_json
from tidemill.core.hosting import Endpoint
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.executors.base import InstanceRef, InstanceSpec
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.records import Site, SpecRecord
from tidemill.store.database import Database
from tidemill.store.records import SqlRecordStore
from tidemill.store.schema import metadata


class Executor:
    def __init__(self) -> None:
        self.reaped: list[str] = []

    def reap(self, job_id: str) -> None:
        self.reaped.append(job_id)


class Publisher:
    def __init__(self) -> None:
        self.cleaned: list[str] = []

    def clean_up(self, job: TrainingJob) -> None:
        self.cleaned.append(job.name)


class Start:
    """A state directory and a store, as a starting service finds them."""

    def __init__(self, root: Path, database: Database) -> None:
        self.root = root
        (root / "jobs").mkdir()
        self.records = SqlRecordStore(database, clock=SystemClock())
        self.executor, self.publisher = Executor(), Publisher()

    def sweep(self) -> None:
        work = sweep(
            self.records,
            self.executor,  # type: ignore[arg-type]
            self.publisher,  # type: ignore[arg-type]
            state_dir=self.root,
            clock=SystemClock(),
        )
        asyncio.run(work)

    def instance(self, job_id: str, *, name: str, kind: Any = "training") -> InstanceDirectory:
        directory = InstanceDirectory.of(self.root, InstanceRef(job_id, 0))
        directory.path.mkdir(parents=True)
        spec = InstanceSpec(
            ref=directory.ref,
            kind=kind,
            job_name=name,
            hosts=("algo-1",),
            framework_version="2.21",
            log_directory=Path("/nowhere"),
        )
        site = Site(state_dir=self.root, environments_dir=self.root, backend="plain")
        write_json(directory.spec_file, SpecRecord(spec=spec, channels=(), site=site).to_json())
        return directory

    def job(self, name: str, job_id: str, *reached: SecondaryStatus) -> None:
        job = TrainingJob(name=name, arn="arn", job_id=job_id, request={}, created_ms=1, log_streams=("s",))
        for status in (SecondaryStatus.STARTING, *reached):
            job = job.enter(status, at_ms=1, message="")
        asyncio.run(self.records.insert(job_record(job)))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with Database.open(tmp_path / "state.db", metadata=metadata) as database:
        yield Start(tmp_path, database)


def test_what_an_ended_job_left_is_cleaned_up_and_a_running_one_left_alone(start: Start) -> None:
    for job_id, name in (("aa", "ended"), ("bb", "running")):
        start.instance(job_id, name=name)
    start.job("ended", "aa", SecondaryStatus.COMPLETED)
    start.job("running", "bb")
    start.sweep()
    assert (start.publisher.cleaned, start.executor.reaped) == (["ended"], [])


@pytest.mark.parametrize("kind", ["training", "endpoint"])
def test_an_instance_that_belongs_to_nothing_is_reaped_once(kind: str, start: Start) -> None:
    directory = start.instance("aa", name="gone", kind=kind)
    start.sweep()
    assert start.executor.reaped == ["aa"]
    assert read_json(directory.path.parent / PUBLISHED_FILE)["name"] == "gone"
    start.sweep()
    assert start.executor.reaped == ["aa"]


def test_an_endpoint_whose_name_another_has_taken_is_left_to_drain(start: Start) -> None:
    for instance_id in ("aa", "bb", "cc"):
        start.instance(instance_id, name="digits", kind="endpoint")
    leaving, serving = (endpoint(instance_id) for instance_id in ("aa", "bb"))
    asyncio.run(start.records.insert(removal_record(leaving)))
    asyncio.run(start.records.insert(endpoint_record(serving)))
    start.sweep()
    assert start.executor.reaped == ["cc"]


def endpoint(instance_id: str) -> Endpoint:
    return Endpoint(
        name="digits",
        arn="arn",
        config_name="digits",
        instance_id=instance_id,
        variant={},
        model={},
        log_streams=("v/0",),
        created_ms=1,
    )


def test_a_job_that_is_through_is_not_looked_into(start: Start) -> None:
    directory = start.instance("aa", name="done")
    (directory.path.parent / PUBLISHED_FILE).write_text("not even read")
    directory.spec_file.write_text("nor this")
    start.sweep()
    assert (start.publisher.cleaned, start.executor.reaped) == ([], [])


@pytest.mark.parametrize("text", ["", "{", "{}", "[1]"])
def test_a_damaged_spec_does_not_keep_the_service_from_starting(text: str, start: Start) -> None:
    start.instance("aa", name="damaged").spec_file.write_text(text)
    start.instance("bb", name="ended")
    start.job("ended", "bb", SecondaryStatus.COMPLETED)
    start.sweep()
    assert (start.publisher.cleaned, start.executor.reaped) == (["ended"], [])
