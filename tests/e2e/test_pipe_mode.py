"""Pipe mode through the whole stack: objects in S3, FIFOs in the job, scripts that read them."""

import gzip
import hashlib
import json
import struct
import textwrap
from collections.abc import Mapping
from typing import Any

import pytest

BUCKET = "sagemaker-us-west-2-000000000000"
READ = """
    import hashlib, json, os, sys
    from pathlib import Path

    data = Path("/opt/ml/input/data")
    if not data.exists():
        data = Path(os.environ["SAGEMAKER_BASE_DIR"]) / "input/data"

    def read(channel, epoch):
        with open(data / f"{channel}_{epoch}", "rb") as fifo:
            return fifo.read()
"""


def reading(script: str) -> str:
    return textwrap.dedent(READ) + textwrap.dedent(script)


def pipe(name: str, uri: str, **members: Any) -> dict[str, Any]:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, **members.pop("source", {})}
    return {"ChannelName": name, "InputMode": "Pipe", "DataSource": {"S3DataSource": source}, **members}


@pytest.fixture
def put(jobs: Any, request: pytest.FixtureRequest) -> Any:
    """Return a function that puts objects below a prefix of this test, and returns the prefix's URI."""

    def put(objects: Mapping[str, bytes]) -> str:
        for name, content in objects.items():
            jobs.s3.put_object(Bucket=BUCKET, Key=f"{request.node.name}/{name}", Body=content)
        return f"s3://{BUCKET}/{request.node.name}/"

    return put


def run(jobs: Any, script: str, *channels: dict[str, Any], **members: Any) -> tuple[dict[str, Any], list[str]]:
    job = jobs.run(reading(script), InputDataConfig=list(channels), **members)
    return job, jobs.log(job["TrainingJobName"])


def test_a_script_reads_two_epochs_of_a_channel(jobs: Any, put: Any) -> None:
    uri = put({"b": b"second", "a": b"first," * 100_000})
    script = """
    config = json.loads((data.parent / "config/inputdataconfig.json").read_text())
    print(json.dumps(config, sort_keys=True))
    for epoch in range(2):
        print(hashlib.sha256(read("train", epoch)).hexdigest())
    print((data / ".tidemill/train_1.outcome").read_text())
    print(os.environ["SM_CHANNEL_TRAIN"], sorted(path.name for path in data.iterdir()))
    """
    job, log = run(jobs, script, pipe("train", uri))
    assert job["TrainingJobStatus"] == "Completed", job
    digest = hashlib.sha256(b"first," * 100_000 + b"second").hexdigest()
    assert log.count(digest) == 2, log
    config = {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    assert json.dumps({"train": config}, sort_keys=True) in log
    assert "2 ok 600006 2" in log


def test_the_mode_of_the_job_is_that_of_its_channels(jobs: Any, put: Any) -> None:
    uri = put({"a.gz": gzip.compress(b"one,") + gzip.compress(b"two,"), "b.gz": gzip.compress(b"three")})
    channel = pipe("train", uri, CompressionType="Gzip")
    del channel["InputMode"]
    image = jobs.request("")["AlgorithmSpecification"]["TrainingImage"]
    job, log = run(
        jobs,
        'print(read("train", 0))',
        channel,
        AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "Pipe"},
    )
    assert job["TrainingJobStatus"] == "Completed", job
    assert str(b"one,two,three") in log


def test_the_order_differs_by_epoch_and_is_repeated_by_its_seed(jobs: Any, put: Any) -> None:
    uri = put({f"{number:02}": b"%02d " % number for number in range(20)})
    script = 'print("ORDERS", read("train", 0).decode(), "|", read("train", 1).decode())'
    seeds = (7, 7, 8)
    names = [
        jobs.create(reading(script), InputDataConfig=[pipe("train", uri, ShuffleConfig={"Seed": seed})])
        for seed in seeds
    ]
    for name in names:
        assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    first, again, other = ([line for line in jobs.log(name) if line.startswith("ORDERS")] for name in names)
    assert first == again != other
    epochs = [part.split() for part in first[0].removeprefix("ORDERS").split("|")]
    assert epochs[0] != epochs[1]
    assert [sorted(map(int, epoch)) for epoch in epochs] == [list(range(20))] * 2


def test_an_augmented_manifest_becomes_records(jobs: Any, put: Any) -> None:
    uri = put({"i/1": b"one", "i/2": b"three"})
    lines = [{"image-ref": f"{uri}i/{number}", "label": number} for number in (2, 1)]
    put({"m": b"\n".join(json.dumps(line).encode() for line in lines)})
    source = {"S3DataType": "AugmentedManifestFile", "AttributeNames": ["image-ref", "label"]}
    channel = pipe("train", f"{uri}m", source=source, RecordWrapperType="RecordIO")
    job, log = run(jobs, 'print(read("train", 0).hex())', channel)
    assert job["TrainingJobStatus"] == "Completed", job
    values = (b"three", b"2", b"one", b"1")
    records = b"".join(struct.pack("<II", 0xCED7230A, len(v)) + v + bytes(-len(v) % 4) for v in values)
    assert records.hex() in log


def test_a_script_that_reads_broken_data_fails_with_the_name_of_the_object(jobs: Any, put: Any) -> None:
    uri = put({"a.gz": gzip.compress(b"whole"), "b.gz": gzip.compress(bytes(range(256)) * 1000)[:-20]})
    job, log = run(jobs, 'print(len(read("train", 0)))', pipe("train", uri, CompressionType="Gzip"))
    assert job["TrainingJobStatus"] == "Failed"
    assert job["FailureReason"].startswith("ClientError: channel 'train', epoch 0: ")
    assert f"{uri}b.gz is truncated" in job["FailureReason"]
    assert any(f"{uri}b.gz is truncated" in line for line in log)


def test_a_reader_that_stops_early_gets_the_next_epoch_from_its_beginning(jobs: Any, put: Any) -> None:
    uri = put({"a": b"0123456789" * 1_000_000})
    script = """
    for epoch in range(3):
        with open(data / f"train_{epoch}", "rb", buffering=0) as fifo:
            print(epoch, fifo.read(10))
    """
    job, log = run(jobs, script, pipe("train", uri))
    assert job["TrainingJobStatus"] == "Completed", job
    assert [line for line in log if line.endswith(str(b"0123456789"))] == [f"{e} {b'0123456789'}" for e in range(3)]


def test_a_job_that_waits_for_an_epoch_without_a_feeder_can_be_stopped(jobs: Any, put: Any) -> None:
    uri = put({"a": b"a" * 4_000_000})
    script = """
    fifo = open(data / "train_0", "rb", buffering=0)
    fifo.read(1)
    print("reading", flush=True)
    import signal
    signal.pause()
    """
    name = jobs.create(reading(script), InputDataConfig=[pipe("train", uri)])
    jobs.wait(name, until=("Training",))
    jobs.wait_for_line(name, "reading")
    jobs.sagemaker.stop_training_job(TrainingJobName=name)
    assert jobs.wait(name)["TrainingJobStatus"] == "Stopped"


# --- PipeModeDataset, which `test_examples` also trains with ---------------------------------------------------------


def test_a_job_reads_two_channels_side_by_side_and_copies_a_third(jobs: Any, put: Any) -> None:
    uri = put({"a/1": b"".join(b"a%d\n" % n for n in range(5)), **{f"b/{n}": b"b%d\n" % n for n in range(5)}})
    script = """
    import os

    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    both = tf.data.Dataset.zip((PipeModeDataset("a", "TextLine").repeat(2), PipeModeDataset("b", "TextLine").repeat(2)))
    pairs = [(a.decode(), b.decode()) for a, b in both.as_numpy_iterator()]
    print("A", *(a for a, _ in pairs))
    print("B", *(b for _, b in pairs))
    print("FILES", sorted(os.listdir(os.environ["SM_CHANNEL_FILES"])))
    """
    image = jobs.request("")["AlgorithmSpecification"]["TrainingImage"]
    streamed, shuffled = pipe("a", f"{uri}a/"), pipe("b", f"{uri}b/", ShuffleConfig={"Seed": 3})
    del streamed["InputMode"], shuffled["InputMode"]
    job = jobs.run(
        textwrap.dedent(script),
        InputDataConfig=[streamed, shuffled, {**pipe("files", f"{uri}b/"), "InputMode": "File"}],
        AlgorithmSpecification={"TrainingImage": image, "TrainingInputMode": "Pipe"},
    )
    assert job["TrainingJobStatus"] == "Completed", job
    log = jobs.log(job["TrainingJobName"])
    assert "A " + "a0 a1 a2 a3 a4 " * 2 in [f"{line} " for line in log]
    (second,) = [line.split()[1:] for line in log if line.startswith("B ")]
    assert [sorted(second[:5]), sorted(second[5:])] == [[f"b{n}" for n in range(5)]] * 2
    assert second[:5] != second[5:]
    assert str([f"{n}" for n in range(5)]) in "".join(line for line in log if line.startswith("FILES"))
