"""The driver against a real store and an executor made of plain state: what it decides, and that it decides once."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.credentials import Credentials
from tidemill.control.driver import TrainingDriver
from tidemill.control.plan import DataMissing
from tidemill.control.slots import Slots
from tidemill.control.training import TRAINING_JOB, Training
from tidemill.core.clock import SystemClock
from tidemill.core.training import SecondaryStatus, TrainingJob, TrainingStatus
from tidemill.errors import LaunchError, ResourceInUse, ServiceUnavailable, ValidationException
from tidemill.executors.base import (
    InstanceExit,
    InstanceRef,
    InstanceSpec,
    InstanceStatus,
    Isolation,
    Outcome,
    Phase,
    StopReason,
)
from tidemill.store.base import Record, Transaction
from tidemill.store.database import Database
from tidemill.store.records import SqlRecordStore
from tidemill.store.schema import metadata
from tidemill.wire.credentials import Credential

REQUEST: dict[str, Any] = {
    "AlgorithmSpecification": {"TrainingImage": "tensorflow-training:2.21.0-cpu-py311", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 30},
}

ABSENT = InstanceStatus(launched=False, running=False, phases=(), exit=None)


class RememberingExecutor:
    """Instances as plain state; the test plays the shims."""

    isolation = Isolation.PLAIN

    def __init__(self) -> None:
        self.states: dict[InstanceRef, InstanceStatus] = {}
        self.launches: list[InstanceRef] = []
        self.stops: list[tuple[InstanceRef, StopReason]] = []
        self.reaped: list[str] = []

    def launch(self, spec: InstanceSpec) -> None:
        if spec.ref not in self.states:
            self.launches.append(spec.ref)
            self.states[spec.ref] = replace(ABSENT, launched=True, running=True)

    def relaunch(self, ref: InstanceRef) -> None:
        assert ref in self.states

    def observe(self, ref: InstanceRef) -> InstanceStatus:
        return self.states.get(ref, ABSENT)

    def stop(self, ref: InstanceRef, *, reason: StopReason) -> None:
        self.stops.append((ref, reason))

    def kill(self, ref: InstanceRef) -> None:
        raise AssertionError("nothing here kills")

    async def changed(self, *, timeout_s: float) -> set[InstanceRef]:
        return set()

    def socket_path(self, ref: InstanceRef) -> Path:
        raise AssertionError("a training job has no socket")

    def reap(self, job_id: str) -> None:
        self.reaped.append(job_id)

    def report(self, ref: InstanceRef, *statuses: str) -> None:
        phases = tuple(Phase(status, 2_000_000_000_000 + i, status) for i, status in enumerate(statuses))
        self.states[ref] = replace(self.states[ref], phases=phases)

    def end(self, ref: InstanceRef, outcome: Outcome = Outcome.COMPLETED, failure: str = "") -> None:
        ended = InstanceExit(outcome=outcome, failure=failure, ended_ms=3)
        self.states[ref] = replace(self.states[ref], running=False, exit=ended)

    def lose(self, ref: InstanceRef) -> None:
        self.states[ref] = replace(self.states[ref], running=False)


class Planner:
    """Specs without inputs."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.plans = 0

    def plan(self, job: TrainingJob, *, variables: Any) -> tuple[InstanceSpec, dict[str, Any]]:
        self.plans += 1
        if self.failure:
            raise self.failure
        assert variables["AWS_SESSION_TOKEN"]
        ref = InstanceRef(job.job_id, 0)
        spec = InstanceSpec(
            ref=ref,
            kind="training",
            job_name=job.name,
            hosts=("algo-1",),
            framework_version="2.21",
            log_directory=Path("/nowhere"),
        )
        return spec, {"inputs": {}}


class Publisher:
    """Publishes to nowhere."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.cleaned: list[str] = []

    async def publish(self, job: TrainingJob, ended: InstanceExit) -> str:
        self.published.append(job.name)
        return f"s3://bucket/{job.name}/model.tar.gz" if ended.outcome is not Outcome.FAILED else ""

    def clean_up(self, job: TrainingJob) -> None:
        self.cleaned.append(job.name)


class Buckets:
    """Every bucket but one exists."""

    def bucket_exists(self, name: str) -> bool:
        return name != "missing"


class RefusingOnce:
    """A transaction that refuses an update of a job, unless one was refused before."""

    def __init__(self, transaction: Transaction, which: Callable[[TrainingJob], bool], refused: list[str]) -> None:
        self._transaction = transaction
        self._which = which
        self._refused = refused
        self.get, self.insert, self.delete = transaction.get, transaction.insert, transaction.delete

    def update(self, kind: str, name: str, change: Any) -> Any:
        record = self.get(kind, name)
        if not self._refused and kind == TRAINING_JOB and record and self._which(_job(record)):
            self._refused.append(name)
            raise ServiceUnavailable("the disk is full")
        return self._transaction.update(kind, name, change)


def _job(record: Record) -> TrainingJob:
    return TrainingJob.from_document(record.document)


class Stage:
    """The control plane of one test; `restart` replaces the driver, as kill -9 and a new start do."""

    def __init__(self, database: Database, *, capacity: int = 2) -> None:
        self.clock = SystemClock()
        self.records = SqlRecordStore(database, clock=self.clock)
        self.executor = RememberingExecutor()
        self.planner = Planner()
        self.publisher = Publisher()
        self.credentials = Credentials(Credential("AKIA", "s"), self.records, clock=self.clock)
        self.capacity = capacity
        self._make()

    def _make(self) -> None:
        self.driver = TrainingDriver(
            self.records,
            self.executor,
            planner=self.planner,  # type: ignore[arg-type]
            publisher=self.publisher,  # type: ignore[arg-type]
            credentials=self.credentials,
            slots=Slots(self.capacity),
            service_variables={},
            clock=self.clock,
        )
        self.training = Training(
            self.records,
            Buckets(),  # type: ignore[arg-type]
            region="us-west-2",
            clock=self.clock,
            wake=self.driver.wake,
        )

    async def restart(self) -> None:
        await self.driver.close()
        self._make()
        await self.driver.start()

    async def create(self, name: str = "digits") -> InstanceRef:
        job = await self.training.create({**REQUEST, "TrainingJobName": name})
        return InstanceRef(job.job_id, 0)

    def refuse_once(self, which: Callable[[TrainingJob], bool]) -> list[str]:
        """The store refuses the next update of a job as a full disk does; the list tells that it did."""
        refused: list[str] = []
        change = self.records.change

        async def refusing(work: Any, **options: Any) -> Any:
            return await change(lambda transaction: work(RefusingOnce(transaction, which, refused)), **options)

        self.records.change = refusing  # type: ignore[method-assign]
        return refused

    def wake(self, ref: InstanceRef) -> None:
        self.driver.changed(ref)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.002)

    async def reaches(self, status: SecondaryStatus, name: str = "digits") -> TrainingJob:
        await self.until(lambda: self.training.get(name).secondary_status is status)
        return self.training.get(name)


@pytest.fixture
def database(tmp_path: Path) -> Any:
    with Database.open(tmp_path / "state.db", metadata=metadata) as database:
        yield database


def test_a_job_goes_from_created_to_completed(database: Database) -> None:
    async def run() -> TrainingJob:
        stage = Stage(database)
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.states)
        stage.executor.report(ref, "Downloading", "Training")
        stage.wake(ref)
        await stage.reaches(SecondaryStatus.TRAINING)
        stage.executor.end(ref)
        stage.wake(ref)
        job = await stage.reaches(SecondaryStatus.COMPLETED)
        await stage.until(lambda: stage.publisher.cleaned == ["digits"])
        assert stage.executor.launches == [ref]
        return job

    job = asyncio.run(run())
    assert [t.status for t in job.transitions] == ["Starting", "Downloading", "Training", "Completed"]
    assert job.model_artifacts == "s3://bucket/digits/model.tar.gz"


def test_a_name_is_taken_once(database: Database) -> None:
    async def run() -> None:
        stage = Stage(database)
        await stage.create()
        with pytest.raises(ResourceInUse, match="'digits'"):
            await stage.create()
        await stage.driver.close()

    asyncio.run(run())


def test_an_output_bucket_that_is_not_there_is_refused(database: Database) -> None:
    async def run() -> None:
        stage = Stage(database)
        request = {**REQUEST, "TrainingJobName": "digits", "OutputDataConfig": {"S3OutputPath": "s3://missing/x"}}
        with pytest.raises(ValidationException, match="missing"):
            await stage.training.create(request)

    asyncio.run(run())


def test_missing_data_fails_the_job_with_its_uri(database: Database) -> None:
    async def run() -> TrainingJob:
        stage = Stage(database)
        stage.planner.failure = DataMissing("ClientError: no S3 objects found under s3://bucket/nothing")
        await stage.create()
        return await stage.reaches(SecondaryStatus.FAILED)

    assert "s3://bucket/nothing" in asyncio.run(run()).failure_reason


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_job_whose_files_do_not_fit_on_the_disk_waits_for_room(
    wrapped: bool, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.attention._RETRY_S", 0.01)

    async def run() -> None:
        stage = Stage(database, capacity=1)
        stage.planner.failure = full_disk(wrapped=wrapped)
        ref = await stage.create()
        await stage.until(lambda: stage.planner.plans >= 3)
        assert stage.training.get("digits").status is TrainingStatus.IN_PROGRESS
        stage.planner.failure = None
        await stage.until(lambda: ref in stage.executor.states)
        await stage.driver.close()

    asyncio.run(run())


def full_disk(*, wrapped: bool) -> Exception:
    full = OSError(errno.ENOSPC, "No space left on device")
    if not wrapped:
        return full
    error = LaunchError("the directory of the instance cannot be written")
    error.__cause__ = full
    return error


def test_a_job_that_waits_for_room_can_be_stopped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.attention._RETRY_S", 0.01)

    async def run() -> None:
        stage = Stage(database, capacity=1)
        stage.planner.failure = full_disk(wrapped=False)
        await stage.create()
        await stage.until(lambda: stage.planner.plans >= 1)
        await stage.training.stop("digits")
        await stage.reaches(SecondaryStatus.STOPPED)
        assert not stage.executor.states

    asyncio.run(run())


def test_a_slot_is_given_back_when_the_store_takes_no_write_at_that_moment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.attention._RETRY_S", 0.01)

    async def run() -> None:
        stage = Stage(database, capacity=1)
        first = await stage.create("first")
        await stage.until(lambda: first in stage.executor.states)
        second = await stage.create("second")
        await stage.reaches(SecondaryStatus.PENDING, "second")
        refused = stage.refuse_once(lambda job: job.name == "second" and job.status is TrainingStatus.IN_PROGRESS)
        stage.executor.end(first)
        stage.wake(first)
        await stage.until(lambda: second in stage.executor.states)
        assert refused
        await stage.driver.close()

    asyncio.run(run())


def test_a_lost_shim_fails_the_job(database: Database) -> None:
    async def run() -> TrainingJob:
        stage = Stage(database)
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.states)
        stage.executor.lose(ref)
        stage.wake(ref)
        return await stage.reaches(SecondaryStatus.FAILED)

    assert asyncio.run(run()).failure_reason == "InternalServerError: instance agent lost"


def test_jobs_beyond_the_capacity_wait_their_turn_and_show_it(database: Database) -> None:
    async def run() -> None:
        stage = Stage(database, capacity=1)
        first = await stage.create("first")
        await stage.until(lambda: first in stage.executor.states)
        second, third = await stage.create("second"), await stage.create("third")
        await stage.reaches(SecondaryStatus.PENDING, "second")
        await stage.reaches(SecondaryStatus.PENDING, "third")
        assert stage.executor.launches == [first]
        for ref, following in ((first, second), (second, third)):
            stage.executor.end(ref)
            stage.wake(ref)
            await stage.until(lambda: following in stage.executor.states)  # noqa: B023
        assert stage.executor.launches == [first, second, third]
        await stage.driver.close()

    asyncio.run(run())


def test_a_waiting_job_is_stopped_without_ever_running(database: Database) -> None:
    async def run() -> TrainingJob:
        stage = Stage(database, capacity=1)
        first = await stage.create("first")
        await stage.until(lambda: first in stage.executor.states)
        await stage.create("second")
        await stage.reaches(SecondaryStatus.PENDING, "second")
        await stage.training.stop("second")
        job = await stage.reaches(SecondaryStatus.STOPPED, "second")
        assert stage.executor.launches == [first]
        await stage.create("third")
        stage.executor.end(first)
        stage.wake(first)
        await stage.until(lambda: len(stage.executor.launches) == 2)
        await stage.driver.close()
        return job

    assert asyncio.run(run()).status is TrainingStatus.STOPPED


def test_a_stop_is_told_once_and_a_script_that_fails_on_the_way_is_stopped_not_failed(database: Database) -> None:
    async def run() -> TrainingJob:
        stage = Stage(database)
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.states)
        await stage.training.stop("digits")
        await stage.until(lambda: bool(stage.executor.stops))
        assert stage.training.get("digits").status is TrainingStatus.STOPPING
        stage.executor.report(ref, "Training")
        stage.wake(ref)
        stage.executor.end(ref, Outcome.FAILED, "AlgorithmError: exit 1")
        stage.wake(ref)
        job = await stage.reaches(SecondaryStatus.STOPPED)
        assert stage.executor.stops == [(ref, StopReason.STOPPED)]
        with pytest.raises(ValidationException, match="Stopped"):
            await stage.training.stop("digits")
        return job

    job = asyncio.run(run())
    assert job.failure_reason == ""
    assert [t.status for t in job.transitions] == ["Starting", "Stopping", "Stopped"]


def test_a_new_driver_takes_up_what_the_old_one_left_and_does_nothing_twice(database: Database) -> None:
    async def run() -> None:
        stage = Stage(database, capacity=1)
        running = await stage.create("running")
        await stage.until(lambda: running in stage.executor.states)
        waiting = await stage.create("waiting")
        await stage.reaches(SecondaryStatus.PENDING, "waiting")
        await stage.restart()
        stage.executor.report(running, "Training")
        stage.wake(running)
        await stage.reaches(SecondaryStatus.TRAINING, "running")
        assert stage.executor.launches == [running], "neither a second launch nor one past the capacity"
        stage.executor.end(running)
        await stage.restart()
        await stage.reaches(SecondaryStatus.COMPLETED, "running")
        await stage.until(lambda: waiting in stage.executor.states)
        assert stage.executor.launches == [running, waiting]
        await stage.driver.close()

    asyncio.run(run())


def test_the_keys_of_a_job_end_in_the_commit_that_ends_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        stage = Stage(database)
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.states)
        keys = await stage.credentials.issue(stage.training.get("digits"), lifetime_s=60)
        seen: list[tuple[bool, bool]] = []

        def note(point: str) -> None:
            if point in ("control.finalise.before", "control.finalise.after"):
                ended = stage.training.get("digits").status.terminal
                seen.append((ended, stage.credentials.lookup(keys.access_key_id) is None))

        monkeypatch.setattr("tidemill.core.faults.point", note)
        stage.executor.end(ref)
        stage.wake(ref)
        await stage.until(lambda: bool(stage.publisher.cleaned))
        assert seen == [(False, False), (True, True)]

    asyncio.run(run())
