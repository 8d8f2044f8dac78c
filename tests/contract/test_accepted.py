"""Accepted members are honored or shown, by boto3 against a live service; a refused request starts nothing."""

import json
import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tidemill.core.compatibility import OPERATIONS
from tidemill.core.compatibility.rows import Recorded
from tidemill.testing import Service

BUCKET = "sagemaker-us-west-2-000000000000"
ROLE = "arn:aws:iam::000000000000:role/SageMakerRole"
IMAGE = "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-inference:2.21.0-cpu"
NETWORK = {"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}}

METRICS_SCRIPT = """
    for epoch in range(3):
        print(f"epoch={epoch} loss={1 / (epoch + 1):.3f}")
    print("a" * 40 + "!")
"""

RECORDED_IN_TRAINING: dict[str, Any] = {
    "AlgorithmSpecification": {
        "TrainingImage": "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311",
        "TrainingInputMode": "File",
        "EnableSageMakerMetricsTimeSeries": True,
        "TrainingImageConfig": {"TrainingRepositoryAccessMode": "Vpc"},
    },
    "ResourceConfig": {
        "InstanceType": "ml.m5.large",
        "InstanceCount": 1,
        "VolumeSizeInGB": 7,
        "KeepAlivePeriodInSeconds": 60,
        "VolumeKmsKeyId": "1234abcd-12ab-34cd-56ef-1234567890ab",
    },
    "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/recorded", "KmsKeyId": "alias/of-the-team"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
    **NETWORK,
    "EnableManagedSpotTraining": True,
    "DebugHookConfig": {"S3OutputPath": f"s3://{BUCKET}/debug", "LocalPath": "/opt/ml/tensors"},
    "ProfilerConfig": {"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 500},
    "DebugRuleConfigurations": [{"RuleConfigurationName": "loss", "RuleEvaluatorImage": "i"}],
    "ProfilerRuleConfigurations": [{"RuleConfigurationName": "r", "RuleEvaluatorImage": "i"}],
    "InfraCheckConfig": {"EnableInfraCheck": True},
}


def shown(description: Any, asked: Any) -> bool:
    """Return whether a description contains everything that was requested."""
    if isinstance(asked, dict):
        return all(name in description and shown(description[name], value) for name, value in asked.items())
    if isinstance(asked, list):
        return len(description) == len(asked) and all(map(shown, description, asked))
    return bool(description == asked)


def holds(request: Any, path: str) -> bool:
    """Return whether a request has a member at a path such as ``A[].B``."""
    for step in path.replace("[]", ".[]").split("."):
        if step == "[]":
            request = request[0]
        elif step not in request:
            return False
        else:
            request = request[step]
    return True


def recorded(operation: str) -> list[str]:
    return [path for path, row in OPERATIONS["sagemaker"][operation].items() if isinstance(row, Recorded)]


def test_recorded_members_of_a_training_job_are_shown(jobs: Any) -> None:
    request = jobs.request("print('hello')", **RECORDED_IN_TRAINING)
    assert [path for path in recorded("CreateTrainingJob") if not holds(request, path)] == []
    jobs.sagemaker.create_training_job(**request)
    name = request["TrainingJobName"]
    assert shown(jobs.describe(name), RECORDED_IN_TRAINING)
    assert jobs.wait(name)["TrainingJobStatus"] == "Completed"
    (of_keys,) = [line for line in jobs.log(name) if "nothing is encrypted" in line]
    assert "alias/of-the-team" in of_keys
    (of_rules,) = [line for line in jobs.log(name) if "no rule is evaluated" in line]
    assert of_rules.endswith(": loss, r")


CONFIGURATIONS = """
import json, os
for name in ("debughookconfig", "profilerconfig"):
    path = f"{os.environ['SM_INPUT_CONFIG_DIR']}/{name}.json"
    print(name, json.dumps(json.load(open(path)) if os.path.exists(path) else None), flush=True)
"""


def test_configurations_of_debugger_and_profiler_are_files(jobs: Any) -> None:
    hook = {
        "S3OutputPath": f"s3://{BUCKET}/debug",
        "HookParameters": {"save_interval": "100"},
        "CollectionConfigurations": [{"CollectionName": "losses", "CollectionParameters": {"save_interval": "1"}}],
    }
    profiler = {"S3OutputPath": f"s3://{BUCKET}/profile", "ProfilingIntervalInMilliseconds": 500}
    asked = {"DebugHookConfig": hook, "ProfilerConfig": profiler}
    given, disabled = (
        jobs.create(CONFIGURATIONS, **members) for members in (asked, {"ProfilerConfig": {"DisableProfiler": True}})
    )
    assert {jobs.wait(name)["TrainingJobStatus"] for name in (given, disabled)} == {"Completed"}
    log = jobs.log(given)
    found = dict(line.split(" ", 1) for line in log if line.startswith(("debughookconfig ", "profilerconfig ")))
    expected = {"debughookconfig": {"LocalPath": "/opt/ml/output/tensors", **hook}, "profilerconfig": profiler}
    assert {name: json.loads(text) for name, text in found.items()} == expected
    assert [line for line in log if "DebugHookConfig selects what to save" in line]
    assert not [line for line in log if "ProfilerConfig selects" in line]
    assert {"debughookconfig null", "profilerconfig null"} <= set(jobs.log(disabled))


def test_recorded_members_of_a_model_and_a_configuration_are_shown(tidemill_service: Service) -> None:
    sagemaker = tidemill_service.client("sagemaker")
    name = f"recorded-{uuid.uuid4().hex[:8]}"
    container = {
        "Image": IMAGE,
        "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz",
        "ContainerHostname": "one",
        "ImageConfig": {"RepositoryAccessMode": "Platform"},
    }
    model = {"PrimaryContainer": container, "ExecutionRoleArn": ROLE, **NETWORK}
    assert [p for p in recorded("CreateModel") if not p.startswith("Containers") and not holds(model, p)] == []
    sagemaker.create_model(ModelName=name, **model)
    assert shown(sagemaker.describe_model(ModelName=name), model)
    variant = {
        "VariantName": "v",
        "ModelName": name,
        "InstanceType": "ml.m5.large",
        "InitialInstanceCount": 1,
        "VariantInstanceProvisionTimeoutInSeconds": 300,
        "AcceleratorType": "ml.eia2.medium",
        "VolumeSizeInGB": 7,
        "ModelDataDownloadTimeoutInSeconds": 60,
        "InferenceAmiVersion": "al2-ami-sagemaker-inference-gpu-2",
    }
    config = {
        "ProductionVariants": [variant],
        "DataCaptureConfig": {
            "EnableCapture": False,
            "InitialSamplingPercentage": 1,
            "DestinationS3Uri": f"s3://{BUCKET}/capture",
            "CaptureOptions": [{"CaptureMode": "Input"}],
            "CaptureContentTypeHeader": {"CsvContentTypes": ["text/csv"]},
            "KmsKeyId": "alias/capture",
        },
        "KmsKeyId": "alias/volumes",
        "AsyncInferenceConfig": {"OutputConfig": {"S3OutputPath": f"s3://{BUCKET}/later", "KmsKeyId": "alias/answers"}},
        "ExecutionRoleArn": ROLE,
        "MetricsConfig": {"EnableEnhancedMetrics": False, "MetricPublishFrequencyInSeconds": 60},
        **NETWORK,
    }
    # A variant has either instances or a ServerlessConfig.
    asleep = {"VariantName": "v", "ModelName": name, "ServerlessConfig": {"MemorySizeInMB": 1024, "MaxConcurrency": 1}}
    configs = (config, {"ProductionVariants": [asleep]})
    members = recorded("CreateEndpointConfig")
    assert [path for path in members if not any(holds(each, path) for each in configs)] == []
    for number, each in enumerate(configs):
        sagemaker.create_endpoint_config(EndpointConfigName=f"{name}-{number}", **each)
        assert shown(sagemaker.describe_endpoint_config(EndpointConfigName=f"{name}-{number}"), each)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"ProductionVariants": [{"VariantName": "v", "InstanceType": "ml.m5.large"}]}, "modelName"),
        (
            {
                "AsyncInferenceConfig": {
                    "OutputConfig": {
                        "S3OutputPath": "s3://b/x",
                        "NotificationConfig": {"SuccessTopic": "arn:aws:sns:us-west-2:000000000000:done"},
                    }
                }
            },
            "asyncInferenceConfig.outputConfig.notificationConfig",
        ),
        ({"AsyncInferenceConfig": {"OutputConfig": {}}}, "asyncInferenceConfig.outputConfig.s3OutputPath"),
        ({"EnableNetworkIsolation": True}, "share the machine's network"),
    ],
)
def test_a_configuration_that_cannot_be_honored_is_refused(
    tidemill_service: Service, members: dict[str, Any], message: str
) -> None:
    sagemaker = tidemill_service.client("sagemaker")
    capture = {"DestinationS3Uri": "s3://b/x", "CaptureOptions": [{"CaptureMode": "Input"}]}
    if "DataCaptureConfig" in members:
        members = {"DataCaptureConfig": {**capture, **members["DataCaptureConfig"]}}
    variants = [{"VariantName": "v", "ModelName": "m", "InstanceType": "ml.m5.large", "InitialInstanceCount": 1}]
    with pytest.raises(ClientError, match=message) as refused:
        sagemaker.create_endpoint_config(EndpointConfigName="c", **{"ProductionVariants": variants, **members})
    assert refused.value.response["Error"]["Code"] == "ValidationException"


def test_a_model_has_one_container_and_not_one_of_each_kind(tidemill_service: Service) -> None:
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
    with pytest.raises(ClientError, match="exactly one container"):
        tidemill_service.client("sagemaker").create_model(
            ModelName="two", PrimaryContainer=container, Containers=[container], ExecutionRoleArn=ROLE
        )


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"sagemaker_distributed_dataparallel_enabled": "true"}, "data parallelism"),
        ({"training_steps": "9", "evaluation_steps": "9", "checkpoint_path": "x"}, "legacy mode"),
    ],
)
def test_a_refused_job_is_not_created(jobs: Any, hyperparameters: dict[str, str], message: str) -> None:
    request = jobs.request("print('hello')", HyperParameters=hyperparameters)
    with pytest.raises(ClientError, match=message) as refused:
        jobs.sagemaker.create_training_job(**request)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(ClientError, match="not found"):
        jobs.describe(request["TrainingJobName"])


def test_filters_that_no_job_passes_list_no_job(jobs: Any) -> None:
    jobs.run("print('hello')")
    plan = "arn:aws:sagemaker:us-west-2:000000000000:training-plan/plan"
    assert jobs.sagemaker.list_training_jobs()["TrainingJobSummaries"]
    for condition in ({"WarmPoolStatusEquals": "Available"}, {"TrainingPlanArnEquals": plan}):
        assert jobs.sagemaker.list_training_jobs(**condition)["TrainingJobSummaries"] == []


def test_tags_come_in_one_page_however_large_it_may_be(jobs: Any) -> None:
    tags = [{"Key": f"k{index:02}", "Value": "v"} for index in range(50)]
    request = jobs.request("print('hello')", Tags=tags)
    arn = jobs.sagemaker.create_training_job(**request)["TrainingJobArn"]
    listed = jobs.sagemaker.list_tags(ResourceArn=arn, MaxResults=50)
    assert (len(listed["Tags"]), listed.get("NextToken")) == (50, None)
    with pytest.raises(ClientError, match="all tags come in one reply"):
        jobs.sagemaker.list_tags(ResourceArn=arn, NextToken="made-up")


def test_the_last_values_of_metrics_are_those_of_the_log(jobs: Any) -> None:
    definitions = [
        {"Name": "loss", "Regex": "loss=([0-9.]+)"},
        {"Name": "endless", "Regex": "(a+)+$"},
        {"Name": "epoch", "Regex": "epoch=([0-9]+)"},
    ]
    algorithm = {**RECORDED_IN_TRAINING["AlgorithmSpecification"], "MetricDefinitions": definitions}
    job = jobs.run(METRICS_SCRIPT, AlgorithmSpecification=algorithm)
    assert job["TrainingJobStatus"] == "Completed"
    found = {metric["MetricName"]: metric["Value"] for metric in job["FinalMetricDataList"]}
    assert found == {"loss": 0.333, "epoch": 2.0}
    begun, ended = job["TrainingStartTime"], job["TrainingEndTime"]
    assert all(begun <= metric["Timestamp"] <= ended for metric in job["FinalMetricDataList"])
    message = job["SecondaryStatusTransitions"][-1]["StatusMessage"]
    assert "metric 'endless' has no value: its regular expression took more than 5 s" in message
