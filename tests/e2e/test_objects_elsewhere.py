"""Contents in another S3, end to end: jobs read their data from there, and their models land there."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
TEAM = "team"
# The model comes from a channel, so the script needs no TensorFlow.
TRAIN = """
    import os
    import pathlib
    import tarfile

    directory = pathlib.Path(os.environ["SM_CHANNEL_FILES"])
    names = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    print("FILES", names, sum(path.stat().st_size for path in directory.rglob("*.bin")), flush=True)
    for epoch in range(2):
        with open(f"{os.environ['SM_CHANNEL_PIPE']}_{epoch}") as fifo:
            print("SUM", sum(map(int, fifo.read().split())), flush=True)
    with tarfile.open(directory / "model.tar.gz") as archive:
        archive.extractall(os.environ["SM_MODEL_DIR"], filter="data")
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


def forget_copies(service: Service) -> None:
    for path in (service.state_dir / "objects/copies").rglob("*"):
        if path.is_file():
            path.unlink()


def test_a_model_is_trained_on_data_there_lands_there_and_is_served_from_there(
    elsewhere: Elsewhere, saved_model: Path
) -> None:
    jobs = elsewhere.jobs
    big, numbers = os.urandom(9 * 1024 * 1024), b" ".join(b"%d" % number for number in range(100))
    files = {"a/big.bin": big, "b.bin": b"b", "model.tar.gz": saved_model.read_bytes()}
    for key, body in {**{f"files/{name}": body for name, body in files.items()}, "pipe/0": numbers}.items():
        jobs.s3.put_object(Bucket=BUCKET, Key=f"in/{key}", Body=body)
    forget_copies(jobs.service)  # the job fetches them itself
    channels = [channel("files", "in/files/", "File"), channel("pipe", "in/pipe/", "Pipe")]
    first = jobs.run(TRAIN, InputDataConfig=channels)
    name = first["TrainingJobName"]
    assert first["TrainingJobStatus"] == "Completed", first
    log = jobs.log(name)
    assert f"FILES ['a/big.bin', 'b.bin', 'model.tar.gz'] {len(big) + 1}" in log
    assert log.count("SUM 4950") == 2
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
    body = runtime.invoke_endpoint(EndpointName=name, ContentType="application/json", Body=b'{"instances": [2, 6]}')
    assert b"5.0" in body["Body"].read()
    sagemaker.delete_endpoint(EndpointName=name)


def test_a_job_that_ends_while_the_other_s3_is_away_waits_for_it(elsewhere: Elsewhere) -> None:
    jobs = elsewhere.jobs
    name = jobs.create(ENDING, Environment={"PORT": elsewhere.other.url.rpartition(":")[2]})
    jobs.wait(name, until=("Training",))
    elsewhere.other.kill()
    jobs.wait_until(lambda: "reconcile.delayed" in jobs.service.log, "the job's end is delayed")
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
