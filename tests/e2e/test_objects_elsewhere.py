"""Contents in another S3, end to end: jobs read their data from there, and their models land there."""

import os
import re
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
TEAM = "team"
TRAIN = """
    import os
    import pathlib
    import tensorflow as tf
    from sagemaker_tensorflow import PipeModeDataset

    directory = pathlib.Path(os.environ["SM_CHANNEL_FILES"])
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    print("FILES", names, sum(path.stat().st_size for path in directory.rglob("*.bin")), flush=True)
    stream = PipeModeDataset("pipe", "RecordIO").map(lambda record: tf.strings.to_number(record, tf.int64))
    print("SUMS", [sum(int(number) for number in stream.as_numpy_iterator()) for _ in range(2)], flush=True)
    model = tf.Module()
    model.weight = tf.Variable(2.0)
    model.double = tf.function(lambda x: {"y": x * model.weight}, [tf.TensorSpec([None], tf.float32, name="x")])
    tf.saved_model.save(model, os.environ["SM_MODEL_DIR"] + "/1", signatures={"serving_default": model.double})
"""
ENDING = """
    import contextlib
    import os
    import pathlib
    import socket
    import time
    pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("trained")
    with contextlib.suppress(ConnectionError):
        while True:
            socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))).close()
            time.sleep(0.05)
"""


@dataclass
class Elsewhere:
    """A service that stores its contents in a bucket of another service."""

    other: Service
    jobs: Any

    def names(self, prefix: str) -> list[str]:
        """What lies in the other S3 for keys of the default bucket, with MARK for what makes names unique."""
        s3 = self.other.client("s3")
        found = s3.list_objects_v2(Bucket=TEAM, Prefix=f"models/{BUCKET}/{prefix}").get("Contents", [])
        keys = [each["Key"].removeprefix(f"models/{BUCKET}/") for each in found]
        return [re.sub(r"\.[0-9a-f]{16}", ".MARK", key) for key in keys]


@pytest.fixture(scope="module")
def elsewhere(jobs_of: Any) -> Iterator[Elsewhere]:
    with Service() as other:
        keys = {name: other.environment[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")}
        other.client("s3").create_bucket(Bucket=TEAM)
        settings = {"object_store": f"s3://{TEAM}/models", "remote_s3": {TEAM: {"endpoint_url": other.url}}}
        with Service(settings=settings, variables={**keys, "AWS_EC2_METADATA_DISABLED": "true"}) as service:
            yield Elsewhere(other, jobs_of(service))


def channel(name: str, prefix: str, mode: str) -> dict[str, Any]:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{prefix}"}}
    return {"ChannelName": name, "InputMode": mode, "DataSource": source}


def record_io(*numbers: int) -> bytes:
    texts = [b"%d" % number for number in numbers]
    return b"".join(struct.pack("<II", 0xCED7230A, len(text)) + text + bytes(-len(text) % 4) for text in texts)


def forget_copies(service: Service) -> None:
    for path in (service.state_dir / "objects/copies").rglob("*"):
        if path.is_file():
            path.unlink()


def test_a_model_is_trained_on_data_there_lands_there_and_is_served_from_there(elsewhere: Elsewhere) -> None:
    jobs = elsewhere.jobs
    big = os.urandom(9 * 1024 * 1024)
    for key, body in {"in/files/a/big.bin": big, "in/files/b.bin": b"b", "in/pipe/0": record_io(*range(100))}.items():
        jobs.s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    forget_copies(jobs.service)  # the job fetches them itself
    channels = [channel("files", "in/files/", "File"), channel("pipe", "in/pipe/", "Pipe")]
    first = jobs.run(TRAIN, InputDataConfig=channels)
    name = first["TrainingJobName"]
    assert first["TrainingJobStatus"] == "Completed", first
    log = jobs.log(name)
    assert f"FILES ['a/big.bin', 'b.bin'] {len(big) + 1}" in log
    assert "SUMS [4950, 4950]" in log
    assert elsewhere.names(f"out/{name}/") == [f"out/{name}/output/model.MARK.tar.gz"]
    assert "1/saved_model.pb" in jobs.model_files(first)

    runtime, sagemaker = jobs.service.client("sagemaker-runtime"), jobs.sagemaker
    image = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu"
    container = {"Image": image, "ModelDataUrl": first["ModelArtifacts"]["S3ModelArtifacts"]}
    sagemaker.create_model(ModelName=name, PrimaryContainer=container, ExecutionRoleArn=first["RoleArn"])
    variant = {"VariantName": "all", "ModelName": name, "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    forget_copies(jobs.service)
    sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=name)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    body = runtime.invoke_endpoint(EndpointName=name, ContentType="application/json", Body=b'{"instances": [1, 2.5]}')
    assert b"5.0" in body["Body"].read()
    sagemaker.delete_endpoint(EndpointName=name)


def test_a_job_that_ends_while_the_other_s3_is_away_waits_for_it(elsewhere: Elsewhere) -> None:
    jobs = elsewhere.jobs
    name = jobs.create(ENDING, Environment={"PORT": elsewhere.other.url.rpartition(":")[2]})
    jobs.wait(name, until=("Training",))
    elsewhere.other.kill()
    deadline = time.monotonic() + 60
    while "reconcile.delayed" not in jobs.service.log:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # A service that starts meanwhile has nothing lost, either.
    jobs.service.kill()
    jobs.service.start()
    assert jobs.describe(name)["TrainingJobStatus"] == "InProgress"
    elsewhere.other.start()
    job = jobs.wait(name)
    assert job["TrainingJobStatus"] == "Completed", job
    assert jobs.model_files(job) == {"weights": b"trained"}
    assert elsewhere.names(f"out/{name}/") == [f"out/{name}/output/model.MARK.tar.gz"]


def test_code_and_copies_of_a_second_job_are_not_fetched_again(elsewhere: Elsewhere) -> None:
    jobs = elsewhere.jobs
    jobs.s3.put_object(Bucket=BUCKET, Key="again/data", Body=b"data")
    script = "import os; print('READ', open(os.environ['SM_CHANNEL_DATA'] + '/data').read(), flush=True)\n"
    request = jobs.request(script, InputDataConfig=[channel("data", "again/", "File")])
    elsewhere.other.kill()
    try:
        jobs.sagemaker.create_training_job(**request)
        jobs.wait(request["TrainingJobName"], until=("Training", "Uploading", "Completed"))
    finally:
        elsewhere.other.start()
    job = jobs.wait(request["TrainingJobName"])
    assert job["TrainingJobStatus"] == "Completed", job
    assert "READ data" in jobs.log(request["TrainingJobName"])
