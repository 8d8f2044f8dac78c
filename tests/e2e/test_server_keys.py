"""The keys of endpoints and transform jobs: boto3 in their scripts acts as the model's role, until the end."""

import io
import json
import tarfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
NAME = f"keys-{uuid.uuid4().hex[:8]}"
DATA = f"data-{uuid.uuid4().hex[:8]}"
WAIT = {"Delay": 1, "MaxAttempts": 120}

# Evaluates the expression in the body, and answers with its value or with the code and message of its error.
SCRIPT = """
import json, os
import boto3
from botocore.credentials import ContainerProvider
from botocore.exceptions import ClientError

def put(bucket, key):
    return boto3.resource("s3").Object(bucket, key).put(Body=b"of a server")["ResponseMetadata"]["HTTPStatusCode"]

def container_keys():
    found = ContainerProvider().load().get_frozen_credentials()
    sts = boto3.client("sts", aws_access_key_id=found.access_key, aws_secret_access_key=found.secret_key,
                       aws_session_token=found.token)
    return sts.get_caller_identity()["Arn"]

def handler(data, context):
    try:
        found = eval(data.read().decode())
    except ClientError as error:
        found = [error.response["Error"]["Code"], error.response["Error"]["Message"]]
    return json.dumps(found, default=str), "application/json"
"""


@pytest.fixture(scope="module")
def service(tidemill_service: Service, saved_model: Path) -> Service:
    """Return a service with a bucket of data, and a model whose script evaluates requests."""
    s3, sagemaker = tidemill_service.client("s3"), tidemill_service.client("sagemaker")
    buffer = io.BytesIO()
    with tarfile.open(saved_model) as source, tarfile.open(fileobj=buffer, mode="w:gz") as target:
        for member in source:
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
        member = tarfile.TarInfo("code/inference.py")
        member.size = len(SCRIPT)
        target.addfile(member, io.BytesIO(SCRIPT.encode()))
    s3.create_bucket(Bucket=DATA, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    s3.put_object(Bucket=DATA, Key="weights", Body=b"1,2")
    s3.put_object(Bucket=BUCKET, Key=f"{NAME}/model.tar.gz", Body=buffer.getvalue())
    container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": f"s3://{BUCKET}/{NAME}/model.tar.gz"}
    sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
    return tidemill_service


def test_the_script_of_an_endpoint_acts_as_the_models_role_until_the_endpoint_ends(
    service: Service, wait_until: Callable[..., Any]
) -> None:
    sagemaker, runtime = service.client("sagemaker"), service.client("sagemaker-runtime")
    variant = {"VariantName": "v", "ModelName": NAME, "InstanceType": "local", "InitialInstanceCount": 1}
    capture = {
        "InitialSamplingPercentage": 100,
        "DestinationS3Uri": f"s3://{DATA}/captured",
        "CaptureOptions": [{"CaptureMode": "Input"}],
    }
    sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant], DataCaptureConfig=capture)
    sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=NAME, WaiterConfig=WAIT)

    def ask(expression: str) -> Any:
        reply = runtime.invoke_endpoint(EndpointName=NAME, ContentType="text/plain", Body=expression.encode())
        return json.loads(reply["Body"].read())

    arn = f"arn:aws:sts::000000000000:assumed-role/SageMakerRole/endpoint.{NAME}"
    assert ask("boto3.client('sts').get_caller_identity()['Arn']") == arn
    assert ask(f"boto3.resource('s3').Object({DATA!r}, 'weights').get()['Body'].read().decode()") == "1,2"
    assert ask(f"put({BUCKET!r}, 'my/answer')") == 200
    assert ask(f"put({DATA!r}, 'captured/mine')") == 200
    assert ask(f"boto3.client('sagemaker').describe_endpoint(EndpointName={NAME!r})['EndpointStatus']") == "InService"
    code, message = ask(f"put({DATA!r}, 'weights')")
    assert (code, f"s3:PutObject on resource: arn:aws:s3:::{DATA}/weights" in message) == ("AccessDenied", True)
    # AWS's SDKs get the same keys from the address that SageMaker gives containers.
    assert ask("container_keys()") == arn
    assert ask("os.environ['AWS_CONTAINER_CREDENTIALS_RELATIVE_URI'].startswith('@127.0.0.1:')")

    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    keys = ask(f"[os.environ[name] for name in {names!r}]")
    sts = boto3.Session(*keys, region_name="us-west-2").client("sts", endpoint_url=service.url)
    assert sts.get_caller_identity()["Arn"] == arn
    sagemaker.delete_endpoint(EndpointName=NAME)

    def ended() -> bool:
        try:
            sts.get_caller_identity()
        except ClientError as error:
            return error.response["Error"]["Code"] == "UnrecognizedClientException"
        return False

    wait_until(ended, "the end of the keys")


def test_the_script_of_a_transform_job_acts_as_the_models_role(service: Service) -> None:
    s3, sagemaker = service.client("s3"), service.client("sagemaker")
    expressions = {
        "who": "boto3.client('sts').get_caller_identity()['Arn']",
        "read": f"boto3.resource('s3').Object({DATA!r}, 'weights').get()['Body'].read().decode()",
        "own": f"put({DATA!r}, 'out/mine')",
        "other": f"put({DATA!r}, 'weights')",
    }
    for key, expression in expressions.items():
        s3.put_object(Bucket=BUCKET, Key=f"{NAME}/asked/{key}", Body=expression.encode())
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{NAME}/asked/"}
    sagemaker.create_transform_job(
        TransformJobName=NAME,
        ModelName=NAME,
        TransformInput={"DataSource": {"S3DataSource": source}, "ContentType": "text/plain"},
        TransformOutput={"S3OutputPath": f"s3://{DATA}/out"},
        TransformResources={"InstanceType": "ml.m5.large", "InstanceCount": 1},
    )
    sagemaker.get_waiter("transform_job_completed_or_stopped").wait(TransformJobName=NAME, WaiterConfig=WAIT)
    found = {key: json.loads(s3.get_object(Bucket=DATA, Key=f"out/{key}.out")["Body"].read()) for key in expressions}
    assert found["who"] == f"arn:aws:sts::000000000000:assumed-role/SageMakerRole/transform-job.{NAME}"
    assert (found["read"], found["own"], found["other"][0]) == ("1,2", 200, "AccessDenied")
    page = service.client("logs").get_log_events(
        logGroupName="/aws/sagemaker/TransformJobs", logStreamName=f"{NAME}/data-log"
    )
    denied = f"s3:PutObject on arn:aws:s3:::{DATA}/weights (role 'SageMakerRole')"
    assert page["events"][-1]["message"] == f"tidemill: AccessDenied for the keys of this job: {denied}"
