"""Tuning jobs by boto3, without a driver: what is kept of a request, and what its trainings would get."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from tidemill.control.resources import TUNING_JOB
from tidemill.control.tuning.definition import definitions_of, trial_name
from tidemill.core.training import JobStatus
from tidemill.services.sagemaker.state_changes import state_change

ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
KEYS = ["1f3a0c6e-0000-4000-8000-000000000001", "1f3a0c6e-0000-4000-8000-000000000002"]


def definition(name: str, key: str) -> dict[str, Any]:
    return {
        "DefinitionName": name,
        "TuningObjective": {"Type": "Maximize", "MetricName": "score"},
        "HyperParameterRanges": {"IntegerParameterRanges": [{"Name": "n", "MinValue": "1", "MaxValue": "3"}]},
        "StaticHyperParameters": {"epochs": "2"},
        "AlgorithmSpecification": {
            "TrainingImage": "tensorflow-training:2.21.0-cpu-py311",
            "TrainingInputMode": "File",
            "MetricDefinitions": [{"Name": "score", "Regex": "score=(.*)"}],
        },
        "RoleArn": ROLE,
        "OutputDataConfig": {"S3OutputPath": "s3://data/out", "KmsKeyId": key},
        "HyperParameterTuningResourceConfig": {
            "AllocationStrategy": "Prioritized",
            "InstanceConfigs": [
                {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
                {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 2},
            ],
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        "RetryStrategy": {"MaximumRetryAttempts": 3},
        "Environment": {"NAME": "value"},
    }


@pytest.fixture
def request_of() -> dict[str, Any]:
    return {
        "HyperParameterTuningJobName": "tuned",
        "HyperParameterTuningJobConfig": {
            "Strategy": "Random",
            "ResourceLimits": {"MaxNumberOfTrainingJobs": 4, "MaxParallelTrainingJobs": 2},
        },
        "TrainingJobDefinitions": [definition("first", KEYS[0]), definition("second", KEYS[1])],
    }


def test_a_definition_becomes_the_request_of_its_trainings(
    sagemaker: Any, kms: Any, stage: Any, request_of: dict[str, Any]
) -> None:
    arn = sagemaker.create_hyper_parameter_tuning_job(**request_of)["HyperParameterTuningJobArn"]
    assert arn.endswith(":hyper-parameter-tuning-job/tuned") and stage.woken == ["tuned"]
    assert {each["KeyId"] for each in kms.list_keys()["Keys"]} >= set(KEYS)
    job = stage.tuning.get("tuned")
    second = definitions_of(job)[1]
    made = second.training_request(trial_name(job, 1), {"n": "2"})
    assert made["HyperParameters"] == {"epochs": "2", "n": "2", "_tuning_objective_metric": "score"}
    assert made["RetryStrategy"] == {"MaximumRetryAttempts": 3} and made["Environment"] == {"NAME": "value"}
    assert made["ResourceConfig"] == {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    found = sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName="tuned")
    assert found["HyperParameterTuningJobStatus"] == "InProgress"
    assert found["HyperParameterTuningJobConfig"]["TrainingJobEarlyStoppingType"] == "Off"
    assert [each["DefinitionName"] for each in found["TrainingJobDefinitions"]] == ["first", "second"]
    (listed,) = sagemaker.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"]
    assert listed["HyperParameterTuningJobArn"] == arn and listed["ObjectiveStatusCounters"]["Pending"] == 0
    event = state_change(stage.records.get(TUNING_JOB, "tuned"), previous="", delivery="d", region="us-west-2")
    assert (event["detail-type"], event["resources"]) == ("SageMaker HyperParameter Tuning Job State Change", [arn])
    detail = json.loads(json.dumps(event["detail"]))
    assert detail["CreationTime"] == round(found["CreationTime"].timestamp() * 1000)
    assert detail["HyperParameterTuningJobConfig"] == found["HyperParameterTuningJobConfig"]


def test_a_request_whose_trainings_could_not_run_is_refused(
    sagemaker: Any, request_of: dict[str, Any], refusal: Any
) -> None:
    request_of["TrainingJobDefinitions"][1]["OutputDataConfig"]["S3OutputPath"] = "s3://missing-bucket/out"
    status, code, message = refusal(sagemaker.create_hyper_parameter_tuning_job, **request_of)
    assert (status, code) == (400, "ValidationException") and "'missing-bucket' does not exist" in message
    assert sagemaker.list_hyper_parameter_tuning_jobs()["HyperParameterTuningJobSummaries"] == []
    for operation in ("describe", "stop", "delete"):
        call = getattr(sagemaker, f"{operation}_hyper_parameter_tuning_job")
        assert refusal(call, HyperParameterTuningJobName="other")[1] == "ResourceNotFound"


async def _end(stage: Any, name: str) -> None:
    await stage.tuning.update(name, lambda job: replace(job.decide(JobStatus.STOPPED), status=JobStatus.STOPPED))


def test_a_warm_start_reads_the_metrics_of_its_parent_from_the_log(
    sagemaker: Any, stage: Any, request_of: dict[str, Any], refusal: Any
) -> None:
    (one, _), config = request_of.pop("TrainingJobDefinitions"), request_of["HyperParameterTuningJobConfig"]
    config["ParameterRanges"] = one.pop("HyperParameterRanges")
    config["HyperParameterTuningJobObjective"] = one.pop("TuningObjective")
    metrics = one["AlgorithmSpecification"]["MetricDefinitions"]
    one.pop("DefinitionName")
    request = {**request_of, "TrainingJobDefinition": one}
    sagemaker.create_hyper_parameter_tuning_job(**request)
    asyncio.run(_end(stage, "tuned"))
    one["AlgorithmSpecification"].pop("MetricDefinitions")
    # Without a parent there is none; an image that does not run is named before that.
    assert "MetricDefinitions; add some" in refusal(sagemaker.create_hyper_parameter_tuning_job, **request)[2]
    image = one["AlgorithmSpecification"]["TrainingImage"]
    one["AlgorithmSpecification"]["TrainingImage"] = "174872318107.dkr.ecr.us-west-2.amazonaws.com/kmeans:1"
    assert "built-in algorithm kmeans" in refusal(sagemaker.create_hyper_parameter_tuning_job, **request)[2]
    one["AlgorithmSpecification"]["TrainingImage"] = image
    for kind in ("IdenticalDataAndAlgorithm", "TransferLearning"):
        request["WarmStartConfig"] = {
            "ParentHyperParameterTuningJobs": [{"HyperParameterTuningJobName": "tuned"}],
            "WarmStartType": kind,
        }
        sagemaker.create_hyper_parameter_tuning_job(**{**request, "HyperParameterTuningJobName": kind})
        found = sagemaker.describe_hyper_parameter_tuning_job(HyperParameterTuningJobName=kind)
        assert found["TrainingJobDefinition"]["AlgorithmSpecification"]["MetricDefinitions"] == metrics
