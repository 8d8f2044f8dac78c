"""Serverless endpoints by boto3: started by the first request, stopped when idle, limited."""

import contextlib
import io
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
SCRIPT = b"""
import time

def handler(data, context):
    body = data.read()
    time.sleep(float(body))
    return body, "text/plain"
"""
WAIT = {"Delay": 1, "MaxAttempts": 120}


def _archive(saved_model: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(saved_model) as source, tarfile.open(fileobj=buffer, mode="w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(SCRIPT)
        target.addfile(member, io.BytesIO(SCRIPT))
    return buffer.getvalue()


def _variant(**members: Any) -> dict[str, Any]:
    return {
        "VariantName": "v",
        "ModelName": "asleep",
        "ServerlessConfig": {"MemorySizeInMB": 2048, "MaxConcurrency": 1},
        **members,
    }


def test_a_serverless_endpoint_sleeps_wakes_and_is_limited(saved_model: Path, wait_until: Callable[..., Any]) -> None:
    with Service(settings={"serverless_idle_s": 1.0}) as service:
        sagemaker = service.client("sagemaker")
        service.client("s3").put_object(Bucket=BUCKET, Key="m/model.tar.gz", Body=_archive(saved_model))
        container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": f"s3://{BUCKET}/m/model.tar.gz"}
        sagemaker.create_model(ModelName="asleep", PrimaryContainer=container)
        with pytest.raises(ClientError, match="leave one of the two out"):
            sagemaker.create_endpoint_config(
                EndpointConfigName="asleep", ProductionVariants=[_variant(InitialInstanceCount=1)]
            )
        sagemaker.create_endpoint_config(EndpointConfigName="asleep", ProductionVariants=[_variant()])
        sagemaker.create_endpoint(EndpointName="asleep", EndpointConfigName="asleep")
        sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="asleep", WaiterConfig=WAIT)
        _asleep(sagemaker, wait_until)
        config = Config(read_timeout=300, retries={"total_max_attempts": 1})
        runtime = service.boto3_session().client("sagemaker-runtime", config=config)

        def invoke(body: bytes) -> bytes:
            return runtime.invoke_endpoint(EndpointName="asleep", Body=body)["Body"].read()

        assert invoke(b"0.0") == b"0.0"

        def invoke_slowly() -> None:
            served = b""
            while not served:
                with contextlib.suppress(ClientError):  # refused while one of the short calls uses the only place
                    served = invoke(b"3.0")

        slow = threading.Thread(target=invoke_slowly)
        slow.start()
        refused = _refusal(lambda: invoke(b"0.0"), while_alive=slow)
        slow.join()
        assert (refused["Error"]["Code"], refused["ResponseMetadata"]["HTTPStatusCode"]) == ("ThrottlingException", 429)
        _asleep(sagemaker, wait_until)
        service.kill()  # stopped servers stay stopped, and start again on request
        service.start()
        assert invoke(b"0.0") == b"0.0"
        sagemaker.delete_endpoint(EndpointName="asleep")


def _asleep(sagemaker: Any, wait_until: Callable[..., Any]) -> None:
    """Wait until the endpoint has no instance; it stays InService."""

    def asleep() -> bool:
        endpoint = sagemaker.describe_endpoint(EndpointName="asleep")
        [variant] = endpoint["ProductionVariants"]
        assert endpoint["EndpointStatus"] == "InService"
        assert variant["CurrentServerlessConfig"]["MaxConcurrency"] == 1
        return variant["CurrentInstanceCount"] == 0

    wait_until(asleep, "the endpoint to have no instance")


def _refusal(call: Any, *, while_alive: threading.Thread) -> Any:
    """Repeat a call while another one is in progress, and return its first refusal."""
    while while_alive.is_alive():
        try:
            call()
        except ClientError as error:
            return error.response
    pytest.fail("no call was refused")
