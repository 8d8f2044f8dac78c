"""Training data in another S3, for which the test uses a second service with other keys."""

import gzip
import os
import struct
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tidemill.sandbox import detect, fuse_fault
from tidemill.testing import Service

BUCKET = "far-away"
NO_FUSE = fuse_fault(detect("auto").sandbox)
READ = """
    import os

    def numbers(epoch):
        with open(f"{os.environ['SM_CHANNEL_TRAIN']}_{epoch}") as fifo:
            return [int(number) for number in fifo.read().split()]

"""
COUNT = """
    import os
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    def numbers():
        stream = PipeModeDataset("train", "RecordIO").map(lambda record: tf.strings.to_number(record, tf.int64))
        return [int(number) for number in stream.as_numpy_iterator()]
"""


@dataclass
class Far:
    """The other S3, and jobs of a service that is configured for it."""

    s3: Any
    url: str
    jobs: Any

    def put(self, key: str, data: bytes) -> str:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=data)
        return f"s3://{BUCKET}/{key}"


@pytest.fixture(scope="module")
def far(jobs_of: Any) -> Iterator[Far]:
    with Service() as store:
        keys = {name: store.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        s3 = store.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        with Service(
            settings={"remote_s3": {"far-*": {"endpoint_url": store.url}}},
            variables={**keys, "AWS_EC2_METADATA_DISABLED": "true"},
        ) as service:
            yield Far(s3, store.url, jobs_of(service))


def channel(uri: str, mode: str = "Pipe", **members: Any) -> dict[str, Any]:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}}
    return {"ChannelName": "train", "InputMode": mode, "DataSource": source, **members}


def record_io(*numbers: int) -> bytes:
    texts = [b"%d" % number for number in numbers]
    return b"".join(struct.pack("<II", 0xCED7230A, len(text)) + text + bytes(-len(text) % 4) for text in texts)


def test_a_job_reads_a_packed_remote_channel(far: Far) -> None:
    for part in range(5):
        numbers = b"".join(b"%d " % number for number in range(part * 1000, part * 1000 + 1000))
        far.put(f"packed/{part}.gz", gzip.compress(numbers))
    script = READ + "    print('SAME', [numbers(epoch) == list(range(5000)) for epoch in range(3)], flush=True)\n"
    uri = f"s3://{BUCKET}/packed/"
    job = far.jobs.run(textwrap.dedent(script), InputDataConfig=[channel(uri, CompressionType="Gzip")])
    assert job["TrainingJobStatus"] == "Completed", job
    assert "SAME [True, True, True]" in far.jobs.log(job["TrainingJobName"])


def test_a_job_copies_remote_files(far: Far) -> None:
    for part in range(20):
        far.put(f"files/{part % 3}/{part}", b"x" * part)
    script = """
    import os
    from pathlib import Path

    files = [path for path in Path(os.environ["SM_CHANNEL_TRAIN"]).rglob("*") if path.is_file()]
    in_place = all(int(path.name) % 3 == int(path.parent.name) for path in files)
    print("FILES", len(files), sum(path.stat().st_size for path in files), in_place)
    """
    job = far.jobs.run(textwrap.dedent(script), InputDataConfig=[channel(f"s3://{BUCKET}/files/", mode="File")])
    assert job["TrainingJobStatus"] == "Completed", job
    assert "FILES 20 190 True" in far.jobs.log(job["TrainingJobName"])


@pytest.mark.skipif(bool(NO_FUSE), reason=f"FUSE: {NO_FUSE}")
def test_tensorflow_reads_remote_files_on_demand(far: Far) -> None:
    content = os.urandom(3_000_000)
    for part in range(3):
        far.put(f"lazy/{part}", content)
    script = """
    import os
    import tensorflow as tf

    names = sorted(tf.io.gfile.glob(os.environ["SM_CHANNEL_TRAIN"] + "/*"))
    print("SIZES", [tf.io.gfile.stat(name).length for name in names], flush=True)
    records = tf.data.FixedLengthRecordDataset(names, 1000)
    print("RECORDS", len(list(records.as_numpy_iterator())), flush=True)
    """
    job = far.jobs.run(textwrap.dedent(script), InputDataConfig=[channel(f"s3://{BUCKET}/lazy/", mode="FastFile")])
    assert job["TrainingJobStatus"] == "Completed", job
    log = far.jobs.log(job["TrainingJobName"])
    assert {"SIZES [3000000, 3000000, 3000000]", "RECORDS 9000"} < set(log)


def test_a_job_reads_on_while_the_service_is_dead(far: Far) -> None:
    far.put("outlive/a", b" ".join(b"%d" % number for number in range(100)))
    script = READ + "    for epoch in range(200):\n        print('SUM', epoch, sum(numbers(epoch)), flush=True)\n"
    name = far.jobs.create(textwrap.dedent(script), InputDataConfig=[channel(f"s3://{BUCKET}/outlive/")])
    far.jobs.wait_for_line(name, "SUM 0 4950")
    far.jobs.service.kill()
    far.jobs.service.start()
    job = far.jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job
    assert [line for line in far.jobs.log(name) if line.startswith("SUM")] == [f"SUM {n} 4950" for n in range(200)]


@pytest.mark.matrix
def test_a_dataset_raises_once_an_object_is_another_one(far: Far) -> None:
    far.put("replaced/a", record_io(1, 2))
    uri = far.put("replaced/b", record_io(3))
    script = COUNT + "    while True:\n        print('READ', numbers(), flush=True)\n"
    name = far.jobs.create(textwrap.dedent(script), InputDataConfig=[channel(f"s3://{BUCKET}/replaced/")])
    far.jobs.wait_for_line(name, "READ [1, 2, 3]")
    far.put("replaced/b", record_io(4))
    job = far.jobs.wait(name)
    assert job["TrainingJobStatus"] == "Failed"
    assert "InternalError" in job["FailureReason"]
    assert f"{uri} cannot be read from {far.url}: HTTP 412" in job["FailureReason"], job["FailureReason"]
    assert "READ [1, 2, 4]" not in far.jobs.log(name)


def test_a_missing_bucket_fails_the_job_before_the_script_starts(far: Far) -> None:
    job = far.jobs.run("print('ran')", InputDataConfig=[channel("s3://far-none/x/")])
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"] == (
        f"ClientError: channel 'train': the bucket of s3://far-none/x/ does not exist at {far.url} (remote_s3 'far-*')"
    )
