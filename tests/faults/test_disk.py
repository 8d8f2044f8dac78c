"""A full disk of the state directory, for the service and for a job: requests are refused with a reason, nothing is
lost, and everything works again when there is room.

The disk is a small tmpfs, which only root may mount; for other users these tests are skipped.
"""

import contextlib
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
DISK_BYTES = 192 << 20
SMALL_DISK_BYTES = 24 << 20
SLEEPER = """
    import os, time
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w") as file:
        file.write("w" * 1000)
    print("RUN", flush=True)
    time.sleep(600)
"""
LARGE_MODEL = """
    import os
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "wb") as file:
        file.write(os.urandom(16 << 20))
    print("RUN")
"""
SMALL_MODEL = """
    import os
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "wb") as file:
        file.write(os.urandom(1000))
    print("RUN")
"""
GREEDY = """
    with open("/opt/ml/checkpoints/all", "wb") as file:
        while True:
            file.write(bytes(1 << 20))
"""
# Leaves room for the archive of its model only.
FULL_TO_THE_BRIM = """
    import os
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "weights"), "w") as file:
        file.write("w" * 1000)
    print("RUN", flush=True)
    disk = os.statvfs("/opt/ml")
    with open("/opt/ml/checkpoints/all", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, disk.f_bavail * disk.f_frsize - (64 << 10))
"""

WaitUntil = Callable[[Callable[[], Any], str], Any]


class Disk:
    """A small disk, and a file that uses up its free space."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    @property
    def free_bytes(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    @contextlib.contextmanager
    def filled(self, *, but_bytes: int = 0) -> Iterator[None]:
        """Leave no more than ``but_bytes`` free on the disk during the block."""
        try:
            with self._filler.open("wb") as file:
                while not self._allocated(file, self.free_bytes - but_bytes):
                    pass
            yield
        finally:
            self._filler.unlink()

    @staticmethod
    def _allocated(file: IO[bytes], size_bytes: int) -> bool:
        """Allocate the bytes. Return whether there was space: the service may have taken some meanwhile."""
        try:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return False
        return True


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disk]:
    with _mounted(tmp_path_factory.mktemp("disk"), size_bytes=DISK_BYTES) as disk:
        yield disk


@contextlib.contextmanager
def _mounted(path: Path, *, size_bytes: int) -> Iterator[Disk]:
    options = f"size={size_bytes},mode=0700"
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.fixture(scope="module")
def jobs(disk: Disk, jobs_of: Any) -> Iterator[Any]:
    with Service(state_dir=disk.path / "state", settings={"stop_grace_s": 1, "max_instances": 2}) as service:
        yield jobs_of(service)


@pytest.fixture(scope="module")
def oracle(jobs: Any, oracle_of: Any) -> Iterator[Any]:
    made = oracle_of(jobs)
    yield made
    made.check_ends()


@pytest.fixture(autouse=True)
def room(impatient: Callable[[str], Any], wait_until: WaitUntil) -> None:
    """Wait until the space that the last test used is free again, and the service has noticed."""
    s3 = impatient("s3")
    wait_until(lambda: accepted(s3.put_object, Bucket=BUCKET, Key="room", Body=b"."), "room again")


@pytest.fixture
def impatient(jobs: Any) -> Callable[[str], Any]:
    """Return a function that creates clients without retries."""
    session, config = jobs.service.boto3_session(), Config(retries={"total_max_attempts": 1})
    return lambda name: session.client(name, config=config)


def test_a_full_disk_refuses_what_is_new_and_lets_the_rest_go_on(
    disk: Disk, jobs: Any, oracle: Any, impatient: Callable[[str], Any], wait_until: WaitUntil
) -> None:
    sagemaker, s3 = impatient("sagemaker"), impatient("s3")
    running = jobs.create(SLEEPER)
    jobs.wait_for_line(running, "RUN")
    refused = jobs.request("print('RUN')")
    name = refused["TrainingJobName"]
    s3.put_object(Bucket=BUCKET, Key="kept", Body=b"kept")
    with disk.filled():
        with pytest.raises(ClientError) as create:
            sagemaker.create_training_job(**refused)
        check_refusal(create.value)
        with pytest.raises(ClientError) as put:
            s3.put_object(Bucket=BUCKET, Key="new", Body=b"x" * 100_000)
        check_refusal(put.value)
        with pytest.raises(ClientError, match="there is no training job"):
            sagemaker.describe_training_job(TrainingJobName=name)
        assert sagemaker.describe_training_job(TrainingJobName=running)["SecondaryStatus"] == "Training"
        assert s3.list_objects_v2(Bucket=BUCKET, Prefix="new")["KeyCount"] == 0
        assert s3.get_object(Bucket=BUCKET, Key="kept")["Body"].read() == b"kept"
        assert "RUN" in oracle.log(running)
        sagemaker.stop_training_job(TrainingJobName=running)
        oracle.check(running, "Stopped", lines=["RUN"])
        s3.delete_object(Bucket=BUCKET, Key="kept")
    wait_until(lambda: accepted(sagemaker.create_training_job, **refused), "creates are accepted again")
    oracle.check(name, "Completed", lines=["RUN"])


def test_a_job_whose_model_does_not_fit_on_the_disk_fails_alone_with_a_reason(
    disk: Disk, jobs: Any, oracle: Any
) -> None:
    with disk.filled(but_bytes=28 << 20):
        large, small = jobs.create(LARGE_MODEL), jobs.create(SMALL_MODEL)
        job = oracle.check(large, "Failed", lines=["RUN"])
        oracle.check(small, "Completed", lines=["RUN"])
    assert job["FailureReason"].startswith("ClientError: no space left on device: /opt/ml/model")


def test_a_job_that_fills_the_disk_fails_and_its_space_is_freed(disk: Disk, jobs: Any, oracle: Any) -> None:
    before = disk.free_bytes
    job = oracle.check(jobs.create(GREEDY), "Failed")
    assert job["FailureReason"].startswith("ClientError: no space left on device")
    assert disk.free_bytes > before - (8 << 20)


def test_a_job_that_leaves_no_room_but_for_its_model_is_completed(jobs: Any, oracle: Any) -> None:
    job = oracle.check(jobs.create(FULL_TO_THE_BRIM), "Completed", lines=["RUN"])
    assert jobs.model_files(job) == {"weights": b"w" * 1000}


def check_refusal(error: ClientError) -> None:
    assert error.response["ResponseMetadata"]["HTTPStatusCode"] == 503
    assert error.response["Error"]["Code"] == "ServiceUnavailable"
    assert "full" in error.response["Error"]["Message"]


def accepted(call: Callable[..., object], **request: Any) -> bool:
    try:
        call(**request)
    except ClientError as error:
        check_refusal(error)
        return False
    return True


def test_a_service_starts_on_a_disk_of_24_mib_and_runs_a_job(tmp_path: Path, jobs_of: Any) -> None:
    with _mounted(tmp_path, size_bytes=SMALL_DISK_BYTES) as disk, Service(state_dir=disk.path / "state") as service:
        assert (disk.path / "state" / "ballast").stat().st_size < SMALL_DISK_BYTES / 10
        assert jobs_of(service).run("print('RUN')")["TrainingJobStatus"] == "Completed"
