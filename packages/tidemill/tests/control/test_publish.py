"""The publisher takes over artifacts of an instance on another machine, and removes the files of finished jobs."""

import asyncio
import io
import tarfile
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from separate_executor import SeparateExecutor

from tidemill.control.bucket_rules import BucketRules, DefaultEncryption
from tidemill.control.job_archive import JobArchive
from tidemill.control.kms_keys import KmsKeys
from tidemill.control.training.plan import instances_of
from tidemill.control.training.publish import ArtifactLost, Publisher
from tidemill.core.clock import SystemClock
from tidemill.core.files import read_json
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.training import SecondaryStatus, TrainingJob
from tidemill.instance.spec import InstanceSpec
from tidemill.instance.status import InstanceExit
from tidemill.store.database.schema import metadata
from tidemill.store.database.sqlite.database import SqliteDatabase
from tidemill.store.logs.sink import SegmentSink
from tidemill.store.objects.index import ObjectInfo
from tidemill.store.objects.store import ObjectStore
from tidemill.store.records.store import SqlRecordStore

SCRIPT = "import os, pathlib; (pathlib.Path(os.environ['SAGEMAKER_BASE_DIR']) / 'model/m').write_text('trained')"
REQUEST = {
    "TrainingJobName": "digits",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "AlgorithmSpecification": {},
}


def instance_of(job: TrainingJob) -> InstanceRef:
    """Return the only instance of a job."""
    (ref,) = instances_of(job)
    return ref


class Stage:
    """One job that has ended, its instance, and its publisher."""

    def __init__(self, root: Path, objects: ObjectStore, keys: KmsKeys, rules: BucketRules) -> None:
        self.objects = objects
        self.keys = keys
        self.rules = rules
        self.jobs = root / "jobs"
        self.archive = JobArchive(self.jobs)
        self.executor = SeparateExecutor(root / "elsewhere", objects=objects, logs=SegmentSink(root / "logs"))
        self.publisher = Publisher(objects, self.executor, archive=self.archive, logs=root / "logs", rules=rules)
        job = TrainingJob(name="digits", arn="a", job_id="aa", request=REQUEST, created_ms=1, log_streams=("s",))
        self.job = job.enter(SecondaryStatus.COMPLETED, at_ms=2, message="")

    async def run_instance(self) -> InstanceExit:
        spec = InstanceSpec(
            ref=instance_of(self.job),
            kind="training",
            job_name=self.job.name,
            hosts=("algo-1",),
            framework_version="2.21",
            log=StreamName("jobs", "digits"),
            config={"hyperparameters": {"script": SCRIPT}},
        )
        self.executor.launch([spec])
        async with asyncio.timeout(60):
            while (ended := self.executor.observe(spec.ref).exit) is None:
                await self.executor.changed(timeout_s=10)
        return ended


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with SqliteDatabase.open(tmp_path / "state.db", metadata=metadata) as database:
        objects = ObjectStore(database, tmp_path / "objects", clock=SystemClock())
        records = SqlRecordStore(database, clock=SystemClock())
        keys = KmsKeys(records, region="us-west-2", clock=SystemClock())
        run(keys.name("alias/team"))
        stage = Stage(tmp_path, objects, keys, BucketRules(records, objects, keys, clock=SystemClock()))
        yield stage
        stage.executor.reap(stage.job.job_id)
        stage.executor.close()
        run(objects.close())


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_a_model_is_an_object_of_the_bucket_and_publishing_it_again_changes_nothing(stage: Stage) -> None:
    async def publish() -> tuple[str, bytes]:
        await stage.objects.ensure_bucket("bucket")
        ended = await stage.run_instance()
        uri = await stage.publisher.publish(stage.job, ended)
        first = stage.objects.require("bucket", "out/digits/output/model.tar.gz")
        stage.executor.reap(stage.job.job_id)
        assert await stage.publisher.publish(stage.job, ended) == uri
        assert stage.objects.require("bucket", "out/digits/output/model.tar.gz") == first
        return uri, await stage.objects.read_bytes(first)

    uri, archive = run(publish())
    assert uri == "s3://bucket/out/digits/output/model.tar.gz"
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        assert members.getnames() == ["m"]


@pytest.mark.parametrize("key", ["alias/team", "1234abcd"])
def test_an_artifact_shows_the_key_that_its_job_named(stage: Stage, key: str) -> None:
    output = {**REQUEST["OutputDataConfig"], "KmsKeyId": key}
    stage.job = replace(stage.job, request={**REQUEST, "OutputDataConfig": output})

    async def publish() -> ObjectInfo:
        await stage.objects.ensure_bucket("bucket")
        await stage.publisher.publish(stage.job, await stage.run_instance())
        return stage.objects.require("bucket", "out/digits/output/model.tar.gz")

    arn = run(stage.keys.name(key))
    assert ":key/" in arn
    assert run(publish()).headers == {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": arn}


def test_an_artifact_shows_the_default_of_its_bucket_if_its_job_named_no_key(stage: Stage) -> None:
    async def publish() -> ObjectInfo:
        await stage.objects.ensure_bucket("bucket")
        default = DefaultEncryption(algorithm="aws:kms", key="alias/team", bucket_key=True)
        await stage.rules.set_encryption("bucket", default)
        await stage.publisher.publish(stage.job, await stage.run_instance())
        return stage.objects.require("bucket", "out/digits/output/model.tar.gz")

    expected = {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": run(stage.keys.name("alias/team"))}
    assert run(publish()).headers == {**expected, "BucketKeyEnabled": True}


def test_an_artifact_without_file_or_bucket_is_lost_with_a_reason(stage: Stage) -> None:
    async def publish() -> None:
        ended = await stage.run_instance()
        with pytest.raises(ArtifactLost, match="its bucket was deleted while the job ran"):
            await stage.publisher.publish(stage.job, ended)
        await stage.objects.ensure_bucket("bucket")
        stage.executor.reap(stage.job.job_id)
        with pytest.raises(ArtifactLost, match=r"model\.tar\.gz of the job is gone and not at s3://bucket/out"):
            await stage.publisher.publish(stage.job, ended)

    run(publish())


def test_of_a_job_that_is_through_its_record_stays(stage: Stage) -> None:
    run(stage.run_instance())
    for _ in range(2):
        stage.publisher.clean_up(stage.job)
    record = read_json(stage.jobs / "aa/record.json")
    assert (record["name"], record["status"], record["request"]) == ("digits", "Completed", REQUEST)
    assert read_json(stage.jobs / "aa/published.json") == {"version": 1, "name": "digits", "ended_ms": 2}
    assert stage.archive.is_finished("aa")
    assert stage.executor.reaped == ["aa", "aa"]


def test_a_job_that_was_never_launched_leaves_no_files(stage: Stage) -> None:
    stage.publisher.clean_up(stage.job)
    assert stage.executor.reaped == ["aa"]
    assert not stage.jobs.exists()
