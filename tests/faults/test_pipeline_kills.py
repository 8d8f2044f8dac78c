"""A pipeline of six steps, with a condition and reused results, survives kill -9 of the service at every step."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from victim import Victim

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311"
PREPARE = """
import json, pathlib
print("PREPARED", flush=True)
pathlib.Path("/opt/ml/processing/report/report.json").write_text(json.dumps({"rows": {"count": 12}}))
"""
TRAIN = """
import os, pathlib
print("TRAINED", flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text("w")
"""
COMMITTED, CREATED, NOTED = (f"control.pipelines.{name}" for name in ("step.committed", "job.created", "job.committed"))
STAGES = (
    *(COMMITTED, CREATED),  # Prepare
    NOTED,  # Train
    COMMITTED,  # Check, whose branch begins with Final
    CREATED,  # Final
    *(COMMITTED, CREATED),  # Model
    *(COMMITTED, CREATED),  # Register
    "control.pipelines.end.before",
)
"""The fault points of one execution, in the order in which its steps pass them; one for each start of the service."""


@pytest.fixture
def victim(tmp_path: Path, jobs_of: Any) -> Iterator[Victim]:
    made = Victim(tmp_path, jobs_of)
    try:
        yield made
    finally:
        made.service._clean_up()


def definition(jobs: Any) -> dict[str, Any]:
    jobs.s3.put_object(Bucket=BUCKET, Key="code/prepare.py", Body=PREPARE.encode())
    report = {"S3Uri": f"s3://{BUCKET}/report", "LocalPath": "/opt/ml/processing/report", "S3UploadMode": "EndOfJob"}
    code = {"S3Uri": f"s3://{BUCKET}/code/prepare.py", "LocalPath": "/opt/ml/processing/input/code"}
    prepare = {
        "RoleArn": ROLE,
        "AppSpecification": {
            "ImageUri": IMAGE,
            "ContainerEntrypoint": ["python3", "/opt/ml/processing/input/code/prepare.py"],
        },
        "ProcessingInputs": [
            {"InputName": "code", "S3Input": {**code, "S3DataType": "S3Prefix", "S3InputMode": "File"}},
        ],
        "ProcessingOutputConfig": {"Outputs": [{"OutputName": "report", "S3Output": report}]},
        "ProcessingResources": {
            "ClusterConfig": {"InstanceCount": 1, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}
        },
    }
    training = jobs.request(TRAIN, name="code")
    del training["TrainingJobName"]
    rows = {"Std:JsonGet": {"PropertyFile": {"Get": "Steps.Prepare.PropertyFiles.Report"}, "Path": "rows.count"}}
    final = {**training, "Environment": {"BEFORE": {"Get": "Steps.Train.ModelArtifacts.S3ModelArtifacts"}}}
    data = {"Get": "Steps.Final.ModelArtifacts.S3ModelArtifacts"}
    container = {"Image": "tensorflow-inference:2.21", "ModelDataUrl": data}
    types = {"SupportedContentTypes": ["text/csv"], "SupportedResponseMIMETypes": ["text/csv"]}
    package = {"InferenceSpecification": {"Containers": [container], **types}, "ModelPackageGroupName": "group"}
    cached = {"CacheConfig": {"Enabled": True, "ExpireAfter": "P1D"}}
    branch = [
        {"Name": "Final", "Type": "Training", "Arguments": final},
        {
            "Name": "Model",
            "Type": "Model",
            "Arguments": {"ExecutionRoleArn": ROLE, "PrimaryContainer": container},
        },
        {"Name": "Register", "Type": "RegisterModel", "Arguments": package, "DependsOn": ["Model"]},
    ]
    check = {"Type": "GreaterThanOrEqualTo", "LeftValue": rows, "RightValue": 10}
    return {
        "Version": "2020-12-01",
        "Steps": [
            {
                "Name": "Prepare",
                "Type": "Processing",
                "Arguments": prepare,
                "PropertyFiles": [
                    {"PropertyFileName": "Report", "OutputName": "report", "FilePath": "report.json"},
                ],
                **cached,
            },
            {"Name": "Train", "Type": "Training", "Arguments": training, "DependsOn": ["Prepare"], **cached},
            {
                "Name": "Check",
                "Type": "Condition",
                "Arguments": {"Conditions": [check], "IfSteps": branch, "ElseSteps": []},
                "DependsOn": ["Train"],
            },
        ],
    }


def names(jobs: Any) -> dict[str, list[str]]:
    """Return what exists of each kind that the steps create."""
    client = jobs.sagemaker
    found = {
        "processing": [each["ProcessingJobName"] for each in client.list_processing_jobs()["ProcessingJobSummaries"]],
        "training": [each["TrainingJobName"] for each in client.list_training_jobs()["TrainingJobSummaries"]],
        "models": [each["ModelName"] for each in client.list_models()["Models"]],
    }
    packages = client.list_model_packages(ModelPackageGroupName="group")["ModelPackageSummaryList"]
    return {**found, "packages": [each["ModelPackageArn"] for each in packages]}


def steps(jobs: Any, arn: str) -> dict[str, dict[str, Any]]:
    found = jobs.sagemaker.list_pipeline_execution_steps(PipelineExecutionArn=arn, SortOrder="Ascending")
    return {each["StepName"]: each for each in found["PipelineExecutionSteps"]}


def succeeded(jobs: Any, arn: str, wait_until: Any) -> dict[str, dict[str, Any]]:
    """Wait until an execution has ended, and return its steps."""

    def ended() -> dict[str, Any] | None:
        found = jobs.sagemaker.describe_pipeline_execution(PipelineExecutionArn=arn)
        return found if found["PipelineExecutionStatus"] != "Executing" else None

    assert wait_until(ended, lambda: steps(jobs, arn))["PipelineExecutionStatus"] == "Succeeded", steps(jobs, arn)
    return steps(jobs, arn)


@pytest.mark.matrix
def test_six_steps_killed_at_each_are_executed_once_and_their_results_reused(victim: Victim, wait_until: Any) -> None:
    first, *others = STAGES
    victim.start(first)
    sagemaker = victim.jobs.sagemaker
    text = json.dumps(definition(victim.jobs))
    sagemaker.create_pipeline(PipelineName="killed", PipelineDefinition=text, RoleArn=ROLE)
    arn = sagemaker.start_pipeline_execution(PipelineName="killed")["PipelineExecutionArn"]
    victim.await_death(first)
    for point in others:
        victim.die_again(point)
    victim.revive()
    found = succeeded(victim.jobs, arn, wait_until)
    assert list(found) == ["Prepare", "Train", "Check", "Final", "Model", "Register"]
    assert all((each["StepStatus"], each["AttemptCount"]) == ("Succeeded", 1) for each in found.values())
    assert found["Check"]["Metadata"] == {"Condition": {"Outcome": "True"}}
    once = names(victim.jobs)
    assert {kind: len(each) for kind, each in once.items()} == {
        "processing": 1,
        "training": 2,
        "models": 1,
        "packages": 1,
    }
    assert found["Register"]["Metadata"]["RegisterModel"]["Arn"] == once["packages"][0]
    for name in once["training"]:
        assert victim.jobs.log(name).count("TRAINED") == 1
    final = found["Final"]["Metadata"]["TrainingJob"]["Arn"].partition("/")[2]
    before = victim.jobs.describe(final)["Environment"]["BEFORE"]
    assert before == f"s3://{BUCKET}/out/{(set(once['training']) - {final}).pop()}/output/model.tar.gz"

    # What is cached is reused by the next execution, also if the service dies when it has found it.
    victim.service.kill()
    victim.start(COMMITTED)
    again = victim.jobs.sagemaker.start_pipeline_execution(PipelineName="killed")["PipelineExecutionArn"]
    victim.await_death(COMMITTED)
    victim.revive()
    reused = succeeded(victim.jobs, again, wait_until)
    hits = {name: each.get("CacheHitResult", {}).get("SourcePipelineExecutionArn") for name, each in reused.items()}
    assert hits == {**dict.fromkeys(reused), "Prepare": arn, "Train": arn}
    assert reused["Train"]["Metadata"] == found["Train"]["Metadata"]
    twice = names(victim.jobs)
    assert [len(twice[kind]) for kind in ("processing", "training", "models", "packages")] == [1, 3, 2, 2]
