"""Batch transform by tidemill's SDK and by AWS's unmodified SDK v2: the same client on one service."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
CLIENT = """
import json
import boto3
{imports}

s3 = boto3.client("s3")
model = TensorFlowModel(
    model_data="s3://{bucket}/{who}/model.tar.gz", role="SageMakerRole", framework_version="2.19", name="{who}-model",
)
{create}
transformer = {make}
transformer.transform(
    "s3://{bucket}/{who}/in", content_type="text/csv", split_type="Line", job_name="{who}-job", wait=True, logs=True,
    model_client_config={{"InvocationsTimeoutInSeconds": 60, "InvocationsMaxRetries": 1}},
)
print("PATH", transformer.output_path)
body = s3.get_object(Bucket="{bucket}", Key="{who}-job/a.csv.out")["Body"].read()
print("RESULT", [json.loads(line)["predictions"] for line in body.replace(b"\\n    ", b"").splitlines()])
again = Transformer.attach("{who}-job")
again.wait()
print("ATTACHED", again.model_name, again.strategy, again.max_payload, again.instance_count)
job = boto3.client("sagemaker").describe_transform_job(TransformJobName="{who}-job")
print("ENVIRONMENT", job["Environment"], job["TransformOutput"])
transformer.transform("s3://{bucket}/{who}/nothing-here", job_name="{who}-failed", wait=False)
try:
    transformer.wait()
except {error} as error:
    print("FAILED", error)
transformer.delete_model()
print("MODELS", boto3.client("sagemaker").list_models(NameContains="{who}")["Models"])
"""
ARGUMENTS = (
    'instance_count=1, instance_type="ml.m5.large", strategy="SingleRecord", assemble_with="Line",'
    ' max_payload=1, max_concurrent_transforms=2, env={"WORD": "x"}, accept="application/json"'
)


@pytest.fixture
def run(tidemill_service: Service, saved_model: Path, tmp_path: Path):
    def run(python: Path | str, client: str, who: str) -> str:
        s3 = tidemill_service.client("s3")
        s3.put_object(Bucket=BUCKET, Key=f"{who}/model.tar.gz", Body=saved_model.read_bytes())
        s3.put_object(Bucket=BUCKET, Key=f"{who}/in/a.csv", Body=b"2\n4\n6")
        (tmp_path / "client.py").write_text(textwrap.dedent(client))
        done = subprocess.run(
            [python, "client.py"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **tidemill_service.environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def check(out: str, who: str) -> None:
    assert f"PATH s3://{BUCKET}/{who}-job" in out
    assert "RESULT [[3.0], [4.0], [5.0]]" in out
    assert f"ATTACHED {who}-model SingleRecord 1 1" in out
    assert "ENVIRONMENT {'WORD': 'x'} {" in out
    assert "no S3 objects found under s3://" in out.partition("FAILED ")[2]
    assert "MODELS []" in out


def test_a_model_of_the_own_sdk_transforms(run) -> None:
    client = CLIENT.format(
        imports="from tidemill.errors import JobFailed\nfrom tidemill.sdk import TensorFlowModel, Transformer",
        bucket=BUCKET,
        who="own",
        create="",
        make=f"model.transformer({ARGUMENTS})",
        error="JobFailed",
    )
    out = run(sys.executable, client, "own")
    check(out, "own")
    assert "Transform job own-job: Completed" in out
    assert "transformed s3://" in out  # the log lines


def test_a_model_of_awss_sdk_v2_transforms(run, root: Path) -> None:
    client = CLIENT.format(
        imports="from sagemaker.tensorflow import TensorFlowModel\nfrom sagemaker.transformer import Transformer",
        bucket=BUCKET,
        who="aws",
        create="",
        make=f"model.transformer({ARGUMENTS})",
        error="Exception",
    )
    check(run(root / ".venvs/peers/bin/python", client, "aws"), "aws")
