"""The driver with a real store and an executor on another machine: its decisions, each made once."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from separate_executor import SeparateExecutor

from tidemill.control.credentials import Credentials
from tidemill.control.denials import Denials
from tidemill.control.jobs import TRAINING, Jobs
from tidemill.control.plan import DataMissing
from tidemill.control.resources import TRAINING_JOB
from tidemill.control.slots import Slots
from tidemill.control.training.driver import TrainingDriver
from tidemill.control.training.gang import Gang
from tidemill.control.training.jobs import Training
from tidemill.control.training.plan import instances_of
from tidemill.core.clock import SystemClock
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.training import JobStatus, SecondaryStatus, TrainingJob
from tidemill.errors import (
    CapacityError,
    LaunchError,
    MachinesBusy,
    ResourceInUse,
    ServiceUnavailable,
    ValidationException,
)
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceExit, InstanceOutcome, InstanceStatus, StopReason
from tidemill.store.database.base import Database
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.base import Record, Transaction
from tidemill.store.records.store import SqlRecordStore
from tidemill.wire.signing.credentials import Credential

REQUEST: dict[str, Any] = {
    "AlgorithmSpecification": {"TrainingImage": "tensorflow-training:2.21.0-cpu-py311", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 30},
}


def instance_of(job: TrainingJob) -> InstanceRef:
    """Return the only instance of a job."""
    (ref,) = instances_of(job)
    return ref


class Planner:
    """Plans specs without inputs."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.plans = 0

    def gpus_of(self, request: Any) -> int:
        return 0

    def plan(self, job: TrainingJob, *, variables: Any) -> tuple[tuple[InstanceSpec, ...], dict[str, Any]]:
        self.plans += 1
        if self.failure:
            raise self.failure
        assert variables["AWS_SESSION_TOKEN"]
        specs = tuple(
            InstanceSpec(
                ref=ref,
                kind="training",
                job_name=job.name,
                hosts=job.hosts,
                framework_version="2.21",
                log=StreamName("jobs", stream),
            )
            for ref, stream in zip(instances_of(job), job.log_streams, strict=True)
        )
        return specs, {"inputs": {}}


class Publisher:
    """Publishes nothing."""

    def __init__(self) -> None:
        self.published: list[str] = []
        self.cleaned: list[str] = []

    async def publish(self, job: TrainingJob, ended: InstanceExit) -> str:
        self.published.append(job.name)
        return f"s3://bucket/{job.name}/model.tar.gz" if ended.outcome is not InstanceOutcome.FAILED else ""

    def log(self, job: TrainingJob, lines: Sequence[str]) -> None:
        assert not lines

    def clean_up(self, job: TrainingJob) -> None:
        self.cleaned.append(job.name)


class Buckets:
    """Claims that every bucket but one exists."""

    def bucket_exists(self, name: str) -> bool:
        return name != "missing"


class RefusingOnce:
    """A transaction that refuses the first update of a job."""

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

    def __init__(self, database: Database, executor: SeparateExecutor) -> None:
        self.clock = SystemClock()
        self.records = SqlRecordStore(database, clock=self.clock)
        self.executor = executor
        self.planner = Planner()
        self.publisher = Publisher()
        self.credentials = Credentials(Credential("AKIA", "s"), self.records, clock=self.clock)
        self._make()

    def _make(self) -> None:
        self.driver = TrainingDriver(
            Jobs(self.records, TRAINING),
            self.executor,
            planner=self.planner,  # type: ignore[arg-type]
            publisher=self.publisher,  # type: ignore[arg-type]
            credentials=self.credentials,
            denials=Denials(self.records, clock=self.clock),
            slots=Slots(lambda: self.executor.capacity().instances),
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

    async def create(self, name: str = "digits", **members: Any) -> InstanceRef:
        return instance_of(await self.training.create({**REQUEST, "TrainingJobName": name, **members}))

    async def create_gang(self, instances: int, name: str = "gang", **members: Any) -> tuple[InstanceRef, ...]:
        resources = {**REQUEST["ResourceConfig"], "InstanceCount": instances}
        return instances_of(
            await self.training.create({**REQUEST, "TrainingJobName": name, "ResourceConfig": resources, **members})
        )

    async def begin_attempt(self, attempt: int, name: str = "digits") -> InstanceRef:
        """Make the reports of another launch of a job count, as a restart of its instances does."""

        def change(record: Record) -> Record:
            return TRAINING.write(replace(_job(record), attempt=attempt))

        return instance_of(_job(await self.records.update(TRAINING_JOB, name, change)))

    def refuse_once(self, which: Callable[[TrainingJob], bool]) -> list[str]:
        """Make the store refuse the next update of a job, as a full disk does; the list returned records it."""
        refused: list[str] = []
        change = self.records.change

        async def refusing(work: Any, **options: Any) -> Any:
            return await change(lambda transaction: work(RefusingOnce(transaction, which, refused)), **options)

        self.records.change = refusing  # type: ignore[method-assign]
        return refused

    def wake(self, ref: InstanceRef) -> None:
        self.driver.changed(ref)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.002)

    async def reaches(self, status: SecondaryStatus, name: str = "digits") -> TrainingJob:
        await self.until(lambda: self.training.get(name).secondary_status is status)
        return self.training.get(name)


MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(tmp_path: Path) -> Iterator[MakeStage]:
    """Yield a function that makes a stage whose executor has room for ``capacity`` instances."""
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())

        def make(*, capacity: int = 2) -> Stage:
            logs = SegmentSink(tmp_path / "logs")
            executor = SeparateExecutor(tmp_path / "elsewhere", objects=objects, logs=logs, instances=capacity)
            return Stage(database, executor)

        yield make
        asyncio.run(objects.close())


def test_a_job_goes_from_created_to_completed(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.launches)
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


def test_a_job_waits_while_the_machines_that_fit_it_are_busy(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.training.driver._BUSY_S", 0.01)
    busy = True

    async def run() -> TrainingJob:
        stage = make_stage()
        launch = stage.executor.launch
        asked = []

        def launch_when_free(specs: Any) -> None:
            asked.append(specs)
            if busy:
                raise MachinesBusy("too few machines are free")
            launch(specs)

        nonlocal busy
        monkeypatch.setattr(stage.executor, "launch", launch_when_free)
        stopped = await stage.create("stopped")
        await stage.reaches(SecondaryStatus.PENDING, "stopped")
        await stage.training.stop("stopped")
        await stage.reaches(SecondaryStatus.STOPPED, "stopped")
        ref = await stage.create()
        await stage.reaches(SecondaryStatus.PENDING)
        await stage.restart()
        await stage.until(lambda: len(asked) > 10)
        busy = False
        await stage.until(lambda: ref in stage.executor.launches)
        stage.executor.report(ref, "Downloading", "Training")
        stage.wake(ref)
        await stage.reaches(SecondaryStatus.TRAINING)
        stage.executor.end(ref)
        stage.wake(ref)
        assert stopped not in stage.executor.launches
        return await stage.reaches(SecondaryStatus.COMPLETED)

    job = asyncio.run(run())
    statuses = [t.status for t in job.transitions]
    assert statuses == ["Starting", "Pending", "Starting", "Downloading", "Training", "Completed"]


def test_a_job_for_which_there_are_no_machines_fails_in_sagemakers_words(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        monkeypatch.setattr(stage.executor, "launch", Mock(side_effect=CapacityError("no machine has 8 GPUs")))
        await stage.create()
        return await stage.reaches(SecondaryStatus.FAILED)

    reason = asyncio.run(run()).failure_reason
    assert reason.startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert reason.endswith("no machine has 8 GPUs")


def test_a_name_is_taken_once(make_stage: MakeStage) -> None:
    async def run() -> None:
        stage = make_stage()
        await stage.create()
        with pytest.raises(ResourceInUse, match="'digits'"):
            await stage.create()
        await stage.driver.close()

    asyncio.run(run())


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_with_the_name_of_a_deleted_one_starts_although_that_is_still_cleaned_up(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    async def run() -> None:
        stage, removed = make_stage(), threading.Event()
        clean_up = stage.publisher.clean_up

        def slowly(job: TrainingJob) -> None:
            clean_up(job)
            removed.wait()
            if fails:
                raise OSError(errno.EIO, "the record cannot be written")

        monkeypatch.setattr(stage.publisher, "clean_up", slowly)
        first = await stage.create()
        await stage.until(lambda: first in stage.executor.launches)
        stage.executor.end(first)
        stage.wake(first)
        await stage.until(lambda: stage.publisher.cleaned == ["digits"])
        await stage.training.delete("digits")
        second = await stage.create()
        removed.set()
        await stage.until(lambda: second in stage.executor.launches)
        stage.executor.end(second)
        stage.wake(second)
        await stage.reaches(SecondaryStatus.COMPLETED)
        await stage.driver.close()

    asyncio.run(run())


def test_an_output_bucket_that_is_not_there_is_refused(make_stage: MakeStage) -> None:
    async def run() -> None:
        stage = make_stage()
        request = {**REQUEST, "TrainingJobName": "digits", "OutputDataConfig": {"S3OutputPath": "s3://missing/x"}}
        with pytest.raises(ValidationException, match="missing"):
            await stage.training.create(request)

    asyncio.run(run())


def test_missing_data_fails_the_job_with_its_uri(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        stage.planner.failure = DataMissing("ClientError: no S3 objects found under s3://bucket/nothing")
        await stage.create()
        return await stage.reaches(SecondaryStatus.FAILED)

    assert "s3://bucket/nothing" in asyncio.run(run()).failure_reason


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_job_whose_files_do_not_fit_on_the_disk_waits_for_room(
    wrapped: bool, make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.work_queue._RETRY_S", 0.01)

    async def run() -> None:
        stage = make_stage(capacity=1)
        stage.planner.failure = full_disk(wrapped=wrapped)
        ref = await stage.create()
        await stage.until(lambda: stage.planner.plans >= 3)
        assert stage.training.get("digits").status is JobStatus.IN_PROGRESS
        stage.planner.failure = None
        await stage.until(lambda: ref in stage.executor.launches)
        await stage.driver.close()

    asyncio.run(run())


def full_disk(*, wrapped: bool) -> Exception:
    full = OSError(errno.ENOSPC, "No space left on device")
    if not wrapped:
        return full
    error = LaunchError("the directory of the instance cannot be written")
    error.__cause__ = full
    return error


def test_a_job_that_waits_for_room_can_be_stopped(make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.control.work_queue._RETRY_S", 0.01)

    async def run() -> None:
        stage = make_stage(capacity=1)
        stage.planner.failure = full_disk(wrapped=False)
        await stage.create()
        await stage.until(lambda: stage.planner.plans >= 1)
        await stage.training.stop("digits")
        await stage.reaches(SecondaryStatus.STOPPED)
        assert not stage.executor.launches

    asyncio.run(run())


def test_a_slot_is_released_when_the_store_refuses_the_write(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.control.work_queue._RETRY_S", 0.01)

    async def run() -> None:
        stage = make_stage(capacity=1)
        first = await stage.create("first")
        await stage.until(lambda: first in stage.executor.launches)
        second = await stage.create("second")
        await stage.reaches(SecondaryStatus.PENDING, "second")
        refused = stage.refuse_once(lambda job: job.name == "second" and job.status is JobStatus.IN_PROGRESS)
        stage.executor.end(first)
        stage.wake(first)
        await stage.until(lambda: second in stage.executor.launches)
        assert refused
        await stage.driver.close()

    asyncio.run(run())


@pytest.mark.parametrize(("members", "attempts"), [({}, 3), ({"RetryStrategy": {"MaximumRetryAttempts": 1}}, 2)])
def test_a_job_whose_shim_is_lost_starts_again_until_its_attempts_are_used_up(
    members: dict[str, Any], attempts: int, make_stage: MakeStage
) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        ref = await stage.create(**members)
        for attempt in range(1, attempts + 1):
            now = replace(ref, attempt=attempt)
            await stage.until(lambda now=now: now in stage.executor.launches)  # type: ignore[misc]
            stage.executor.lose(now)
            stage.wake(now)
        job = await stage.reaches(SecondaryStatus.FAILED)
        assert [each.attempt for each in stage.executor.launches] == list(range(1, attempts + 1))
        return job

    job = asyncio.run(run())
    assert job.failure_reason == "InternalServerError: instance agent lost"
    assert [t.status for t in job.transitions] == ["Starting", *["Restarting", "Starting"] * (attempts - 1), "Failed"]
    assert job.transitions[1].message == "Attempt 1 has ended: algo-1 was lost"
    assert job.transitions[2].message == f"Starting attempt 2 of {attempts}"


def test_a_job_that_lost_its_network_starts_again_like_one_that_lost_an_instance(make_stage: MakeStage) -> None:
    gone = "InternalServerError: the network of the job is gone: its process 7 was killed by SIGKILL"

    async def run() -> TrainingJob:
        stage = make_stage()
        first, second = await stage.create_gang(2)
        for ref in (first, second):
            await stage.until(lambda ref=ref: ref in stage.executor.launches)  # type: ignore[misc]
            stage.executor.end(ref, InstanceOutcome.FAILED, gone, lost=True)
            stage.wake(ref)
        for ref in (replace(first, attempt=2), replace(second, attempt=2)):
            await stage.until(lambda ref=ref: ref in stage.executor.launches)  # type: ignore[misc]
            stage.executor.end(ref, InstanceOutcome.COMPLETED)
            stage.wake(ref)
        return await stage.reaches(SecondaryStatus.COMPLETED, "gang")

    job = asyncio.run(run())
    assert job.transitions[1].message.startswith(f"Attempt 1 has ended: algo-1, algo-2 was lost: {gone}")


def test_internal_errors_are_retried_only_with_a_retry_strategy(make_stage: MakeStage) -> None:
    async def run(members: dict[str, Any], failure: str) -> int:
        stage = make_stage()
        ref = await stage.create(f"job-{len(members)}-{len(failure)}", **members)
        await stage.until(lambda: ref in stage.executor.launches)
        stage.executor.end(ref, InstanceOutcome.FAILED, failure)
        stage.wake(ref)
        name = f"job-{len(members)}-{len(failure)}"
        again = replace(ref, attempt=2)
        await stage.until(lambda: stage.training.get(name).status.terminal or again in stage.executor.launches)
        await stage.driver.close()
        return stage.training.get(name).attempt

    strategy = {"RetryStrategy": {"MaximumRetryAttempts": 2}}
    assert asyncio.run(run({}, "InternalServerError: no environment")) == 1
    assert asyncio.run(run(strategy, "InternalServerError: no environment")) == 2
    assert asyncio.run(run(strategy, "AlgorithmError: ValueError")) == 1


def test_an_interrupted_job_continues_as_its_next_attempt_and_a_stop_ends_it(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        ref = await stage.create(EnableManagedSpotTraining=True)
        await stage.until(lambda: ref in stage.executor.launches)
        await stage.training.interrupt("digits")
        await stage.until(lambda: stage.executor.stops == [(ref, StopReason.INTERRUPTED)])
        stage.executor.end(ref, InstanceOutcome.STOPPED)
        stage.wake(ref)
        second = replace(ref, attempt=2)
        await stage.until(lambda: second in stage.executor.launches)
        await stage.training.interrupt("digits")
        await stage.until(lambda: (second, StopReason.INTERRUPTED) in stage.executor.stops)
        await stage.training.stop("digits")
        stage.executor.end(second, InstanceOutcome.STOPPED)
        stage.wake(second)
        return await stage.reaches(SecondaryStatus.STOPPED)

    job = asyncio.run(run())
    assert [t.status for t in job.transitions] == ["Starting", "Interrupted", "Starting", "Stopping", "Stopped"]


def test_a_job_on_spot_instances_starts_no_attempt_when_its_time_is_over(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        limits = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
        ref = await stage.create(EnableManagedSpotTraining=True, StoppingCondition=limits)
        await stage.until(lambda: ref in stage.executor.launches)
        job = stage.training.get("digits")
        await stage.records.update(TRAINING_JOB, "digits", lambda _: TRAINING.write(replace(job, created_ms=0)))
        stage.executor.lose(ref)
        stage.wake(ref)
        return await stage.reaches(SecondaryStatus.MAX_WAIT_TIME_EXCEEDED)

    job = asyncio.run(run())
    assert job.status is JobStatus.STOPPED
    assert job.attempt == 1


def test_only_a_job_on_spot_instances_can_be_interrupted(make_stage: MakeStage) -> None:
    async def run() -> None:
        stage = make_stage()
        await stage.create()
        with pytest.raises(ValidationException, match="EnableManagedSpotTraining"):
            await stage.training.interrupt("digits")
        await stage.driver.close()

    asyncio.run(run())


def test_jobs_beyond_the_capacity_wait_their_turn_and_show_it(make_stage: MakeStage) -> None:
    async def run() -> None:
        stage = make_stage(capacity=1)
        first = await stage.create("first")
        await stage.until(lambda: first in stage.executor.launches)
        second, third = await stage.create("second"), await stage.create("third")
        await stage.reaches(SecondaryStatus.PENDING, "second")
        await stage.reaches(SecondaryStatus.PENDING, "third")
        assert stage.executor.launches == [first]
        for ref, following in ((first, second), (second, third)):
            stage.executor.end(ref)
            stage.wake(ref)
            await stage.until(lambda: following in stage.executor.launches)  # noqa: B023
        assert stage.executor.launches == [first, second, third]
        await stage.driver.close()

    asyncio.run(run())


def test_a_waiting_job_is_stopped_without_ever_running(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage(capacity=1)
        first = await stage.create("first")
        await stage.until(lambda: first in stage.executor.launches)
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

    assert asyncio.run(run()).status is JobStatus.STOPPED


def test_a_stop_is_sent_once_and_a_script_that_fails_meanwhile_is_stopped_not_failed(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.launches)
        await stage.training.stop("digits")
        await stage.until(lambda: bool(stage.executor.stops))
        assert stage.training.get("digits").status is JobStatus.STOPPING
        stage.executor.report(ref, "Training")
        stage.wake(ref)
        stage.executor.end(ref, InstanceOutcome.FAILED, "AlgorithmError: exit 1")
        stage.wake(ref)
        job = await stage.reaches(SecondaryStatus.STOPPED)
        assert stage.executor.stops == [(ref, StopReason.STOPPED)]
        with pytest.raises(ValidationException, match="Stopped"):
            await stage.training.stop("digits")
        return job

    job = asyncio.run(run())
    assert job.failure_reason == ""
    assert [t.status for t in job.transitions] == ["Starting", "Stopping", "Stopped"]


def test_a_new_driver_continues_the_work_of_the_old_one_without_repeating_it(make_stage: MakeStage) -> None:
    async def run() -> None:
        stage = make_stage(capacity=1)
        running = await stage.create("running")
        await stage.until(lambda: running in stage.executor.launches)
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
        await stage.until(lambda: waiting in stage.executor.launches)
        assert stage.executor.launches == [running, waiting]
        await stage.driver.close()

    asyncio.run(run())


def test_the_keys_of_a_job_end_in_the_commit_that_ends_it(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        stage = make_stage()
        ref = await stage.create()
        await stage.until(lambda: ref in stage.executor.launches)
        keys = await stage.credentials.issue(stage.training.get("digits"), lifetime_s=60)
        seen: list[tuple[bool, bool]] = []

        def note(point: str) -> None:
            if point in ("control.finalize.before", "control.finalize.after"):
                ended = stage.training.get("digits").status.terminal
                seen.append((ended, stage.credentials.lookup(keys.access_key_id) is None))

        monkeypatch.setattr("tidemill.core.faults.point", note)
        stage.executor.end(ref)
        stage.wake(ref)
        await stage.until(lambda: bool(stage.publisher.cleaned))
        assert seen == [(False, False), (True, True)]

    asyncio.run(run())


def test_a_new_attempt_is_launched_and_what_an_older_one_reports_is_ignored(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        first = await stage.create()
        await stage.until(lambda: first in stage.executor.launches)
        await stage.driver.close()
        second = await stage.begin_attempt(2)
        await stage.restart()
        await stage.until(lambda: second in stage.executor.launches)
        stage.executor.end(first, InstanceOutcome.FAILED, "AlgorithmError: too late")
        stage.wake(first)
        stage.executor.report(second, "Training")
        stage.wake(second)
        await stage.reaches(SecondaryStatus.TRAINING)
        assert not stage.executor.observe(first).running
        stage.executor.end(second)
        stage.wake(second)
        return await stage.reaches(SecondaryStatus.COMPLETED)

    assert asyncio.run(run()).failure_reason == ""


def test_a_status_of_an_older_attempt_is_no_status_of_the_job(
    make_stage: MakeStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        observe, late = stage.executor.observe, []

        def observe_late(ref: InstanceRef) -> InstanceStatus:
            status = observe(ref)
            if ref.attempt == 2 and status.launched and not late:
                late.append(ref)
                ended = InstanceExit(outcome=InstanceOutcome.FAILED, failure="AlgorithmError: too late", ended_ms=1)
                return replace(status, running=False, exit=ended, attempt=1)
            return status

        monkeypatch.setattr(stage.executor, "observe", observe_late)
        first = await stage.create()
        await stage.until(lambda: first in stage.executor.launches)
        await stage.driver.close()
        second = await stage.begin_attempt(2)
        await stage.restart()
        await stage.until(lambda: bool(late))
        stage.executor.end(second)
        stage.wake(second)
        return await stage.reaches(SecondaryStatus.COMPLETED)

    assert asyncio.run(run()).failure_reason == ""


def test_a_job_is_in_a_phase_when_all_of_its_instances_are(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        first, second = refs = await stage.create_gang(2)
        await stage.until(lambda: stage.executor.launches == [first, second])
        stage.executor.report(first, "Downloading", "Training")
        stage.executor.report(second, "Downloading")
        stage.wake(first)
        await stage.reaches(SecondaryStatus.DOWNLOADING, "gang")
        stage.executor.report(second, "Training")
        stage.wake(second)
        await stage.reaches(SecondaryStatus.TRAINING, "gang")
        stage.executor.end(first)
        stage.wake(first)
        assert stage.training.get("gang").secondary_status is SecondaryStatus.TRAINING
        stage.executor.end(second)
        stage.wake(second)
        assert not stage.executor.stops
        assert stage.training.get("gang").hosts == ("algo-1", "algo-2")
        assert len(refs) == 2
        return await stage.reaches(SecondaryStatus.COMPLETED, "gang")

    job = asyncio.run(run())
    assert [t.status for t in job.transitions] == ["Starting", "Downloading", "Training", "Completed"]
    assert [stream.rpartition("-")[0] for stream in job.log_streams] == ["gang/algo-1", "gang/algo-2"]


@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_failed_instance_is_the_reason_and_the_others_are_stopped(
    restarted: bool, make_stage: MakeStage
) -> None:
    async def run() -> TrainingJob:
        stage = make_stage(capacity=3)
        first, second, third = refs = await stage.create_gang(3)
        await stage.until(lambda: len(stage.executor.launches) == 3)
        stage.executor.end(second, InstanceOutcome.FAILED, "AlgorithmError: ValueError")
        if restarted:
            await stage.restart()
        stage.wake(second)
        await stage.until(lambda: len(stage.executor.stops) == 2)
        assert stage.executor.stops == [(first, StopReason.PEER_FAILED), (third, StopReason.PEER_FAILED)]
        stage.executor.end(first, InstanceOutcome.FAILED, "AlgorithmError: the connection was closed", ended_ms=4)
        stage.executor.end(third, InstanceOutcome.STOPPED)
        stage.wake(first)
        stage.wake(third)
        assert stage.executor.launches == list(refs)
        return await stage.reaches(SecondaryStatus.FAILED, "gang")

    job = asyncio.run(run())
    assert job.failure_reason == "AlgorithmError: ValueError, instance: algo-2"
    assert job.model_artifacts == ""


def test_a_failure_reason_has_at_most_1024_characters(make_stage: MakeStage) -> None:
    async def planned() -> TrainingJob:
        stage = make_stage()
        stage.planner.failure = DataMissing("ClientError: " + "x" * 2000)
        await stage.create()
        return await stage.reaches(SecondaryStatus.FAILED)

    assert asyncio.run(planned()).failure_reason == "ClientError: ".ljust(1024, "x")


@pytest.mark.parametrize("length", [1003, 1004, 1005, 1024])
def test_the_reason_of_one_instance_of_several_leaves_room_for_its_name(length: int) -> None:
    failed = InstanceExit(outcome=InstanceOutcome.FAILED, failure="x" * length, ended_ms=1)
    statuses = [InstanceStatus(launched=True, running=False, phases=(), exit=failed, attempt=1)] * 2
    ended = Gang(("algo-1", "algo-2"), statuses).end()
    assert ended is not None
    reason = ended.failure
    assert reason == "x" * min(length, 1024 - len(", instance: algo-1")) + ", instance: algo-1"
    assert len(reason) <= 1024


def test_a_lost_instance_is_named_and_the_others_are_stopped(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage()
        first, second = await stage.create_gang(2)
        await stage.until(lambda: len(stage.executor.launches) == 2)
        for attempt in (1, 2, 3):
            lost, other = replace(first, attempt=attempt), replace(second, attempt=attempt)
            await stage.until(lambda other=other: other in stage.executor.launches)  # type: ignore[misc]
            stage.executor.lose(lost)
            stage.wake(lost)
            stopped = (other, StopReason.PEER_FAILED)
            await stage.until(lambda stopped=stopped: stopped in stage.executor.stops)  # type: ignore[misc]
            stage.executor.end(other, InstanceOutcome.STOPPED)
            stage.wake(other)
        return await stage.reaches(SecondaryStatus.FAILED, "gang")

    assert asyncio.run(run()).failure_reason == "InternalServerError: instance agent lost, instance: algo-1"


def test_a_job_larger_than_the_capacity_fails_in_the_words_of_sagemaker(make_stage: MakeStage) -> None:
    async def run() -> TrainingJob:
        stage = make_stage(capacity=2)
        await stage.create_gang(3)
        job = await stage.reaches(SecondaryStatus.FAILED, "gang")
        assert not stage.executor.launches
        return job

    reason = asyncio.run(run()).failure_reason
    assert reason.startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert "3 instances were asked for, and 2 can run" in reason


def test_a_job_of_several_instances_waits_for_all_of_its_slots_and_no_job_overtakes_it(make_stage: MakeStage) -> None:
    async def run() -> None:
        stage = make_stage(capacity=2)
        small = await stage.create("small")
        await stage.until(lambda: small in stage.executor.launches)
        gang = await stage.create_gang(2)
        await stage.reaches(SecondaryStatus.PENDING, "gang")
        late = await stage.create("late")
        await stage.reaches(SecondaryStatus.PENDING, "late")
        await stage.restart()
        stage.executor.end(small)
        stage.wake(small)
        await stage.until(lambda: gang[1] in stage.executor.launches)
        assert stage.executor.launches == [small, *gang]
        for ref in gang:
            stage.executor.end(ref)
            stage.wake(ref)
        await stage.until(lambda: late in stage.executor.launches)
        await stage.driver.close()

    asyncio.run(run())
