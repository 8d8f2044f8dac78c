"""Pipe mode through the whole stack: objects in S3, FIFOs in the job, scripts that read them."""

import gzip
import hashlib
import json
import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tidemill.testing import Service

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


# --- PipeModeDataset ----------------------------------------------------------------------------------------------

EXAMPLES = """
    import gzip, sys
    import numpy as np
    import tensorflow as tf

    points = np.random.default_rng(1).normal(size=(600, 4))
    for part in range(3):
        path = f"{sys.argv[1]}/part-{part}"
        with tf.io.TFRecordWriter(path + ".gz", "GZIP") as writer:
            for point in points[part::3]:
                feature = {
                    "point": tf.train.Feature(bytes_list=tf.train.BytesList(value=[point.tobytes()])),
                    "side": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(point.sum() > 0)])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
"""

TRAIN = """
    import os

    import keras
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    FEATURES = {
        "point": tf.io.FixedLenFeature([], tf.string),
        "side": tf.io.FixedLenFeature([], tf.int64),
    }

    def decode(serialized):
        example = tf.io.parse_single_example(serialized, FEATURES)
        return {"point": tf.ensure_shape(tf.io.decode_raw(example["point"], tf.float64), [4])}, example["side"]

    class Counter(keras.callbacks.Callback):
        seen = 0

        def on_train_batch_end(self, batch, logs=None):
            Counter.seen += 1

    rounds = int(os.environ["SM_HP_ROUNDS"])
    stream = PipeModeDataset(channel="training", record_format="TFRecord")
    stream = stream.repeat(rounds).prefetch(10)
    stream = stream.map(decode, num_parallel_calls=10).batch(64)
    point = keras.Input([4], name="point")
    model = keras.Model({"point": point}, keras.layers.Dense(1, activation="sigmoid")(point))
    model.compile(keras.optimizers.SGD(0.5), "binary_crossentropy", metrics=["accuracy"])
    trained = model.fit(stream, verbose=0, callbacks=[Counter()])
    print("STEPS", Counter.seen, "GOOD" if trained.history["accuracy"][-1] > 0.8 else trained.history, flush=True)
    model.export(os.path.join(os.environ["SM_MODEL_DIR"], "1"))
"""


@pytest.fixture(scope="module")
def examples(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write 600 examples to three packed files."""
    directory = tmp_path_factory.mktemp("examples")
    command = [root / ".venvs/tf-2.21/bin/python", "-c", textwrap.dedent(EXAMPLES), directory]
    subprocess.run(command, check=True, capture_output=True)
    return directory


def test_the_estimator_trains_keras_on_a_packed_channel(
    tidemill_service: Service, examples: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(TRAIN))
    (tmp_path / "home").mkdir()
    client = """
    import sys
    from tidemill.sdk import Session, TensorFlow, TrainingInput

    uri = Session().upload_data(sys.argv[1], key_prefix="pipe-examples")
    estimator = TensorFlow(entry_point="train.py", role="SageMakerRole", instance_count=1, instance_type="local",
                           framework_version="2.21", py_version="py311", input_mode="Pipe",
                           hyperparameters={"rounds": 20})
    estimator.fit({"training": TrainingInput(uri, compression="Gzip")})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(client), examples],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path / "home"),
            "TIDEMILL_STATE_DIR": str(tidemill_service.state_dir),
            "TIDEMILL_ENVIRONMENTS_DIR": os.environ["TIDEMILL_ENVIRONMENTS_DIR"],
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # 20 epochs of 600 records in one continuous stream, in batches of 64.
    assert "STEPS 188 GOOD" in done.stdout


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


def test_a_dataset_raises_where_the_data_of_its_channel_ends_early(jobs: Any, put: Any, examples: Path) -> None:
    whole = (examples / "part-0.gz").read_bytes()
    uri = put({"a.gz": whole, "b.gz": whole[:-100]})
    script = """
    from sagemaker_tensorflow import PipeModeDataset

    for record in PipeModeDataset("train", "TFRecord"):
        pass
    """
    job = jobs.run(textwrap.dedent(script), InputDataConfig=[pipe("train", uri, CompressionType="Gzip")])
    assert job["TrainingJobStatus"] == "Failed"
    assert "InternalError" in job["FailureReason"]
    assert f"{uri}b.gz is truncated" in job["FailureReason"], job["FailureReason"]


@pytest.mark.parametrize("isolation", ["auto", "plain"])
def test_a_warm_script_reads_a_stream_in_every_isolation(isolation: str, jobs_of: Any) -> None:
    script = """
    import os, sys
    warm = "tensorflow" in sys.modules
    from sagemaker_tensorflow import PipeModeDataset

    base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
    stream = PipeModeDataset("train", "TextLine", state_dir=f"{base}/pipe_state", pipe_dir=f"{base}/input/data",
                             config_dir=f"{base}/input/config")
    print("READ", warm, *(b" ".join(list(stream.as_numpy_iterator())).decode() for _ in range(2)), flush=True)
    """
    with Service(settings={"warm": True, "isolation": isolation}) as service:
        jobs = jobs_of(service)
        jobs.wait_until(lambda: list((service.state_dir / "warm").glob("*.sock")), "a warm process")
        jobs.s3.put_object(Bucket=BUCKET, Key="warm/a", Body=b"one\ntwo\nthree")
        job = jobs.run(textwrap.dedent(script), InputDataConfig=[pipe("train", f"s3://{BUCKET}/warm/a")])
        assert job["TrainingJobStatus"] == "Completed", job
        assert "READ True one two three one two three" in jobs.log(job["TrainingJobName"])
