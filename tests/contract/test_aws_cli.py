"""The AWS CLI, unmodified, with only the exports of `tidemill env`."""

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"


@pytest.fixture
def aws(tidemill_service: Service, root: Path, tmp_path: Path) -> Any:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **tidemill_service.environment}

    def run(*arguments: str) -> Any:
        command = [str(root / ".venvs/peers/bin/aws"), *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"aws {' '.join(arguments)}: {done.stderr}"
        return json.loads(done.stdout) if done.stdout.strip().startswith(("{", "[")) else done.stdout

    return run


def test_train_wait_deploy_and_invoke(aws: Any, jobs: Any, saved_model: Path, tmp_path: Path) -> None:
    name = f"cli-{uuid.uuid4().hex[:8]}"
    aws("s3", "cp", str(saved_model), f"s3://{BUCKET}/{name}/model.tar.gz")
    assert "model.tar.gz" in aws("s3", "ls", f"s3://{BUCKET}/{name}/")
    request = tmp_path / "request.json"
    request.write_text(json.dumps(jobs.request("print('trained')", name=name)))
    aws("sagemaker", "create-training-job", "--cli-input-json", f"file://{request}")
    jobs.wait(name)  # the CLI's own waiter would sleep two minutes if its first poll came too early
    aws("sagemaker", "wait", "training-job-completed-or-stopped", "--training-job-name", name)
    assert aws("sagemaker", "describe-training-job", "--training-job-name", name)["TrainingJobStatus"] == "Completed"
    streams = aws("logs", "describe-log-streams", "--log-group-name", "/aws/sagemaker/TrainingJobs")["logStreams"]
    assert any(stream["logStreamName"].startswith(f"{name}/") for stream in streams)
    image = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu"
    container = f"Image={image},ModelDataUrl=s3://{BUCKET}/{name}/model.tar.gz"
    aws("sagemaker", "create-model", "--model-name", name, "--primary-container", container)
    variant = f"VariantName=AllTraffic,ModelName={name},InstanceType=ml.m5.large,InitialInstanceCount=1"
    aws("sagemaker", "create-endpoint-config", "--endpoint-config-name", name, "--production-variants", variant)
    aws("sagemaker", "create-endpoint", "--endpoint-name", name, "--endpoint-config-name", name)
    jobs.wait_until(
        lambda: jobs.sagemaker.describe_endpoint(EndpointName=name)["EndpointStatus"] != "Creating", "the endpoint"
    )
    aws("sagemaker", "wait", "endpoint-in-service", "--endpoint-name", name)
    answer = tmp_path / "answer.json"
    aws(
        "sagemaker-runtime", "invoke-endpoint", "--endpoint-name", name, "--content-type", "application/json",
        "--body", '{"instances": [2.0]}', str(answer),
    )  # fmt: skip
    assert json.loads(answer.read_text()) == {"predictions": [3.0]}
    target = (
        *("--service-namespace", "sagemaker", "--resource-id", f"endpoint/{name}/variant/AllTraffic"),
        *("--scalable-dimension", "sagemaker:variant:DesiredInstanceCount"),
    )
    scaling = "application-autoscaling"
    aws(scaling, "register-scalable-target", *target, "--min-capacity", "1", "--max-capacity", "2")
    tracking = {
        "TargetValue": 1000.0,
        "PredefinedMetricSpecification": {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"},
    }
    aws(
        scaling, "put-scaling-policy", *target, "--policy-name", "p", "--policy-type", "TargetTrackingScaling",
        "--target-tracking-scaling-policy-configuration", json.dumps(tracking),
    )  # fmt: skip
    policies = aws(scaling, "describe-scaling-policies", "--service-namespace", "sagemaker")["ScalingPolicies"]
    assert [each["ResourceId"] for each in policies if name in each["ResourceId"]] == [target[3]]
    aws("sagemaker", "delete-endpoint", "--endpoint-name", name)


def test_copy_list_and_remove_objects(aws: Any, tmp_path: Path) -> None:
    prefix = f"s3://{BUCKET}/cli-{uuid.uuid4().hex[:8]}"
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "deep/b.bin").write_bytes(bytes(9 * 1024 * 1024))
    aws("s3", "sync", str(source), prefix)
    assert "deep/b.bin" in aws("s3", "ls", "--recursive", f"{prefix}/")
    back = tmp_path / "back"
    aws("s3", "cp", "--recursive", prefix, str(back))
    assert (back / "deep/b.bin").read_bytes() == (source / "deep/b.bin").read_bytes()
    aws("s3", "rm", "--recursive", prefix)
    assert "a.txt" not in aws("s3api", "list-objects-v2", "--bucket", BUCKET, "--prefix", prefix.split("/", 3)[3])
