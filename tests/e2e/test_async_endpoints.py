"""Asynchronous endpoints: by boto3 across kill -9 of the service, and by AWS's unmodified SDK v2."""

import io
import json
import os
import subprocess
import tarfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.errors import InferenceFailed, ResultPending
from tidemill.sdk import (
    AsyncInferenceConfig,
    AsyncInferenceResponse,
    ServerlessInferenceConfig,
    TensorFlowModel,
    WaiterConfig,
)
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = """
import time

def handler(data, context):
    body = data.read().decode()
    print("asked for", body, flush=True)
    if "bad" in body:
        raise ValueError("bad is no number")
    time.sleep(0.2)
    return body.upper(), context.accept_header
"""
WAIT = {"Delay": 1, "MaxAttempts": 120}


def _archive(saved_model: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(saved_model) as source, tarfile.open(fileobj=buffer, mode="w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(SCRIPT)
        target.addfile(member, io.BytesIO(SCRIPT.encode()))
    return buffer.getvalue()


def _create(service: Service, saved_model: Path) -> None:
    s3, sagemaker = service.client("s3"), service.client("sagemaker")
    s3.put_object(Bucket=BUCKET, Key="later/model.tar.gz", Body=_archive(saved_model))
    container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": f"s3://{BUCKET}/later/model.tar.gz"}
    sagemaker.create_model(ModelName="later", PrimaryContainer=container)
    sagemaker.create_endpoint_config(
        EndpointConfigName="later",
        ProductionVariants=[
            {"VariantName": "v", "ModelName": "later", "InstanceType": "local", "InitialInstanceCount": 1}
        ],
        AsyncInferenceConfig={
            "OutputConfig": {"S3OutputPath": f"s3://{BUCKET}/done", "S3FailurePath": f"s3://{BUCKET}/failed"},
            "ClientConfig": {"MaxConcurrentInvocationsPerInstance": 1},
        },
    )
    sagemaker.create_endpoint(EndpointName="later", EndpointConfigName="later")
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="later", WaiterConfig=WAIT)


def _body(service: Service, uri: str) -> bytes:
    """Return the object as soon as it exists."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    s3 = service.client("s3")
    s3.get_waiter("object_exists").wait(Bucket=bucket, Key=key, WaiterConfig={"Delay": 0.1, "MaxAttempts": 600})
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def _invoke(service: Service, body: bytes | None, **members: Any) -> dict[str, Any]:
    location = f"s3://{BUCKET}/asked/{time.monotonic_ns()}"
    if body is not None:
        service.client("s3").put_object(Bucket=BUCKET, Key=location.removeprefix(f"s3://{BUCKET}/"), Body=body)
    return service.client("sagemaker-runtime").invoke_endpoint_async(
        EndpointName="later", InputLocation=location, ContentType="text/plain", Accept="text/plain", **members
    )


def test_accepted_requests_survive_a_kill_and_are_answered_in_s3(saved_model: Path) -> None:
    with Service() as service:
        _create(service, saved_model)
        described = service.client("sagemaker").describe_endpoint(EndpointName="later")
        assert described["AsyncInferenceConfig"]["OutputConfig"]["S3OutputPath"] == f"s3://{BUCKET}/done"
        with pytest.raises(ClientError, match="Endpoint later is asynchronous; call InvokeEndpointAsync"):
            service.client("sagemaker-runtime").invoke_endpoint(EndpointName="later", Body=b"now")

        replies = [_invoke(service, b"word %d" % index, InferenceId=f"mine-{index}") for index in range(6)]
        assert [each["ResponseMetadata"]["HTTPStatusCode"] for each in replies] == [202] * 6
        assert [each["InferenceId"] for each in replies] == [f"mine-{index}" for index in range(6)]
        assert _body(service, replies[0]["OutputLocation"]) == b"WORD 0"
        service.kill()
        service.start()
        assert [_body(service, each["OutputLocation"]) for each in replies] == [b"WORD %d" % i for i in range(6)]

        failed = _invoke(service, b"bad")
        failure_body = _body(service, failed["FailureLocation"])
        assert json.loads(failure_body) == {
            "error": 'Received server error (500) from primary with message "{"error": "bad is no number"}"'
        }
        missing = _invoke(service, None, RequestTTLSeconds=60, InvocationTimeoutSeconds=5)
        assert b"of InputLocation does not exist" in _body(service, missing["FailureLocation"])
        events = service.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/Endpoints/later", filterPattern='"asked for word"'
        )["events"]
        asked = [each["message"].removeprefix("asked for ") for each in events]
        # One after the other; only the request in progress at the kill may have reached the model twice.
        assert sorted(set(asked)) == [f"word {index}" for index in range(6)]
        assert asked == sorted(asked)
        assert len(asked) <= 7
        service.client("sagemaker").delete_endpoint(EndpointName="later")


def test_the_own_sdk_deploys_asynchronous_and_serverless_endpoints(
    tidemill_service: Service, saved_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in tidemill_service.environment.items():
        monkeypatch.setenv(name, value)
    tidemill_service.client("s3").put_object(Bucket=BUCKET, Key="own/model.tar.gz", Body=saved_model.read_bytes())
    model = TensorFlowModel(f"s3://{BUCKET}/own/model.tar.gz")
    predictor = model.deploy(async_inference_config=AsyncInferenceConfig(), endpoint_name="own-later")
    assert predictor.predict({"instances": [2.0, 4.0]}) == {"predictions": [3.0, 4.0]}
    uploaded = f"s3://{BUCKET}/own/asked"
    response = predictor.predict_async({"instances": ["no number"]}, input_path=uploaded)
    with pytest.raises(InferenceFailed, match=r"Received client error \(400\) from primary"):
        response.get_result(WaiterConfig(max_attempts=60, delay=1))
    assert response.output_path.startswith(f"s3://{BUCKET}/async-endpoint-outputs/own-later/")
    elsewhere = AsyncInferenceResponse(predictor, f"s3://{BUCKET}/not/there", None)
    for waiter in (None, WaiterConfig(max_attempts=2, delay=0.1)):
        with pytest.raises(ResultPending, match=f"no result at s3://{BUCKET}/not/there"):
            elsewhere.get_result(waiter)
    predictor.delete_endpoint()

    config = ServerlessInferenceConfig(max_concurrency=3)
    predictor = model.deploy(serverless_inference_config=config, endpoint_name="own-asleep")
    assert predictor.predict({"instances": [2.0]}) == {"predictions": [3.0]}
    [variant] = tidemill_service.client("sagemaker").describe_endpoint(EndpointName="own-asleep")["ProductionVariants"]
    assert variant["CurrentServerlessConfig"] == {"MemorySizeInMB": 2048, "MaxConcurrency": 3}
    predictor.delete_endpoint()


SLOW_MODEL = """
import sys, tarfile
import tensorflow as tf

@tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
def wait(x):
    begin = tf.timestamp()
    tf.while_loop(lambda: tf.timestamp() - begin < tf.cast(x[0], tf.float64), lambda: (), ())
    return {"y": x}

tf.saved_model.save(tf.Module(), "1", signatures=wait)
with tarfile.open("model.tar.gz", "w:gz") as tar:
    tar.add("1")
"""


@pytest.mark.matrix
def test_a_model_without_code_may_take_longer_than_a_minute(
    tidemill_service: Service, tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in tidemill_service.environment.items():
        monkeypatch.setenv(name, value)
    subprocess.run([root / ".venvs/tf-2.21/bin/python", "-c", SLOW_MODEL], cwd=tmp_path, check=True)
    tidemill_service.client("s3").upload_file(str(tmp_path / "model.tar.gz"), BUCKET, "slow/model.tar.gz")
    model = TensorFlowModel(f"s3://{BUCKET}/slow/model.tar.gz")
    predictor = model.deploy(async_inference_config=AsyncInferenceConfig(), endpoint_name="own-slow")
    assert predictor.predict({"instances": [70.0]}) == {"predictions": [70.0]}
    predictor.delete_endpoint()


CLIENT = """
from sagemaker.async_inference import AsyncInferenceConfig, WaiterConfig
from sagemaker.exceptions import AsyncInferenceModelError
from sagemaker.tensorflow import TensorFlowModel

model = TensorFlowModel(model_data="s3://{bucket}/aws/model.tar.gz", role="SageMakerRole", framework_version="2.19")
predictor = model.deploy(
    1, "ml.m5.large", endpoint_name="aws-later", async_inference_config=AsyncInferenceConfig(
        output_path="s3://{bucket}/aws-done", failure_path="s3://{bucket}/aws-failed",
        max_concurrent_invocations_per_instance=2,
    ),
)
wait = WaiterConfig(max_attempts=60, delay=1)
print("ANSWER", predictor.predict({{"instances": [2.0, 4.0]}}, waiter_config=wait))
later = predictor.predict_async({{"instances": ["no number"]}})
try:
    later.get_result(waiter_config=wait)
except AsyncInferenceModelError as error:
    print("FAILED", str(error).replace("\\n", " "))
predictor.delete_endpoint()
"""


@pytest.mark.matrix
def test_awss_async_predictor_predicts(
    tidemill_service: Service, saved_model: Path, tmp_path: Path, root: Path
) -> None:
    s3 = tidemill_service.client("s3")
    s3.put_object(Bucket=BUCKET, Key="aws/model.tar.gz", Body=saved_model.read_bytes())
    (tmp_path / "client.py").write_text(textwrap.dedent(CLIENT.format(bucket=BUCKET)))
    done = subprocess.run(
        [root / ".venvs/peers/bin/python", "client.py"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **tidemill_service.environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ANSWER {'predictions': [3.0, 4.0]}" in done.stdout
    assert "Received client error (400) from primary" in done.stdout.partition("FAILED ")[2]
