"""What CreateTrainingJob refuses, and that the refusal names the member, the value and what is allowed."""

import copy
from typing import Any

import pytest

from tidemill.control.admission import check_training_request
from tidemill.errors import AwsError
from tidemill.wire.operations import operation

GOOD: dict[str, Any] = {
    "TrainingJobName": "digits",
    "AlgorithmSpecification": {"TrainingImage": "tensorflow-training:2.21.0-cpu-py311", "TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/SageMakerRole",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "ResourceConfig": {"InstanceType": "local", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    "HyperParameters": {"epochs": "3"},
}


def channel(
    name: str, uri: str = "s3://bucket/data", *, data_type: str = "S3Prefix", attributes: Any = (), **more: Any
) -> dict[str, Any]:
    source: dict[str, Any] = {"S3DataType": data_type, "S3Uri": uri}
    if attributes:
        source["AttributeNames"] = attributes
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **more}


def with_(**members: Any) -> dict[str, Any]:
    return {**copy.deepcopy(GOOD), **members}


def output(**members: Any) -> dict[str, Any]:
    return with_(OutputDataConfig={**GOOD["OutputDataConfig"], **members})


REFUSED = {
    "channel ..": (with_(InputDataConfig=[channel("..")]), "channelName", "'..'"),
    "channel .": (with_(InputDataConfig=[channel(".")]), "channelName", "'.'"),
    "channel twice": (with_(InputDataConfig=[channel("a"), channel("a")]), "channelName", "unique"),
    "channels that share a variable": (
        with_(InputDataConfig=[channel("train"), channel("Train")]),
        "channelName",
        "SM_CHANNEL_TRAIN",
    ),
    "21 channels": (with_(InputDataConfig=[channel(f"c{i}") for i in range(21)]), "inputDataConfig", "21 channels"),
    "channel without bucket": (with_(InputDataConfig=[channel("a", "s3://")]), "s3Uri", "'s3://'"),
    "channel of a local file": (with_(InputDataConfig=[channel("a", "file:///etc")]), "s3Uri", "file:///etc"),
    "converse data": (with_(InputDataConfig=[channel("a", data_type="Converse")]), "s3DataType", "Converse"),
    "fast file mode": (with_(InputDataConfig=[channel("a", InputMode="FastFile")]), "inputMode", "FastFile"),
    "fast file mode of the job": (
        with_(
            AlgorithmSpecification={**GOOD["AlgorithmSpecification"], "TrainingInputMode": "FastFile"},
            InputDataConfig=[channel("a")],
        ),
        "algorithmSpecification.trainingInputMode",
        "FastFile",
    ),
    "augmented manifest in file mode": (
        with_(InputDataConfig=[channel("a", data_type="AugmentedManifestFile", attributes=["x"])]),
        "s3DataType",
        "Pipe mode only",
    ),
    "augmented manifest without attributes": (
        with_(InputDataConfig=[channel("a", data_type="AugmentedManifestFile", InputMode="Pipe")]),
        "attributeNames",
        "[]",
    ),
    "attributes without augmented manifest": (
        with_(InputDataConfig=[channel("a", attributes=["x"], InputMode="Pipe")]),
        "attributeNames",
        "['x']",
    ),
    "records in file mode": (
        with_(InputDataConfig=[channel("a", RecordWrapperType="RecordIO")]),
        "recordWrapperType",
        "RecordIO",
    ),
    "a directory that a FIFO needs": (
        with_(InputDataConfig=[channel("a_10"), channel("a", InputMode="Pipe")]),
        "inputDataConfig.1.member.channelName",
        "'a_10'",
    ),
    "the directory of outcomes": (with_(InputDataConfig=[channel(".tidemill")]), "channelName", "'.tidemill'"),
    "gzip in file mode": (with_(InputDataConfig=[channel("a", CompressionType="Gzip")]), "compressionType", "Gzip"),
    "output to a file": (output(S3OutputPath="file:///etc"), "s3OutputPath", "file:///etc"),
    "kms key": (output(KmsKeyId="alias/mine"), "kmsKeyId", "alias/mine"),
    "runtime 0": (with_(StoppingCondition={"MaxRuntimeInSeconds": 0}), "maxRuntimeInSeconds", "0"),
    "runtime -1": (with_(StoppingCondition={"MaxRuntimeInSeconds": -1}), "maxRuntimeInSeconds", "-1"),
    "runtime 2^63": (with_(StoppingCondition={"MaxRuntimeInSeconds": 2**63}), "maxRuntimeInSeconds", str(2**63)),
    "wait below runtime": (
        with_(StoppingCondition={"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 59}),
        "maxWaitTimeInSeconds",
        "59",
    ),
    "101 hyperparameters": (with_(HyperParameters={f"h{i}": "1" for i in range(101)}), "hyperParameters", "101"),
    "NUL in a hyperparameter": (with_(HyperParameters={"a": "x\0y"}), "hyperParameters", "NUL"),
    "101 variables": (with_(Environment={f"V{i}": "1" for i in range(101)}), "environment", "101"),
    "SM_ variable": (with_(Environment={"SM_MODEL_DIR": "/etc"}), "environment.SM_MODEL_DIR", "/etc"),
    "AWS keys": (with_(Environment={"AWS_ACCESS_KEY_ID": "mine"}), "environment.AWS_ACCESS_KEY_ID", "mine"),
    "two instances": (
        with_(ResourceConfig={"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1}),
        "instanceCount",
        "2",
    ),
    "network isolation": (with_(EnableNetworkIsolation=True), "enableNetworkIsolation", "True"),
    "checkpoints": (with_(CheckpointConfig={"S3Uri": "s3://bucket/c"}), "checkpointConfig", "s3://bucket/c"),
    "retries": (with_(RetryStrategy={"MaximumRetryAttempts": 2}), "retryStrategy", "2"),
    "the training compiler": (
        with_(HyperParameters={"sagemaker_training_compiler_enabled": "true"}),
        "hyperParameters.sagemaker_training_compiler_enabled",
        "leave out compiler_config",
    ),
    "the training compiler as AWS's SDK encodes it": (
        with_(HyperParameters={"sagemaker_training_compiler_enabled": '"true"'}),
        "hyperParameters.sagemaker_training_compiler_enabled",
        "jit_compile=True",
    ),
    "MPI": (with_(HyperParameters={"sagemaker_mpi_enabled": "true"}), "sagemaker_mpi_enabled", "Horovod"),
    "data parallelism": (
        with_(HyperParameters={"sagemaker_distributed_dataparallel_enabled": "true"}),
        "sagemaker_distributed_dataparallel_enabled",
        "leave out distribution",
    ),
    "model parallelism": (
        with_(HyperParameters={"mp_parameters": '{"partitions": 2}'}),
        "hyperParameters.mp_parameters",
        "mpirun",
    ),
    "several workers": (
        with_(HyperParameters={"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}),
        "sagemaker_multi_worker_mirrored_strategy_enabled",
        "TF_CONFIG",
    ),
    "output while the job runs": (
        with_(HyperParameters={"sagemaker_s3_output": '"s3://bucket/x"'}),
        "sagemaker_s3_output",
        "output/intermediate",
    ),
    "legacy mode as the first SDK sends it": (
        with_(
            HyperParameters={
                "checkpoint_path": '"s3://bucket/checkpoints"',
                "training_steps": "1000",
                "evaluation_steps": "null",
                "sagemaker_requirements": '""',
            }
        ),
        "hyperParameters",
        "instead of requirements_file, put a requirements.txt beside the entry point",
    ),
    "legacy mode's requirements alone": (
        with_(HyperParameters={"sagemaker_requirements": '"requirements.txt"'}),
        "sagemaker_requirements",
        "legacy mode",
    ),
    "all three steps of legacy mode": (
        with_(HyperParameters={"checkpoint_path": "x", "training_steps": "1", "evaluation_steps": "1"}),
        "training_steps",
        "read --training_steps in the script",
    ),
    "the image of legacy mode": (
        with_(
            AlgorithmSpecification={
                "TrainingImage": "520713654638.dkr.ecr.us-west-2.amazonaws.com/sagemaker-tensorflow:1.10.0-gpu-py2",
                "TrainingInputMode": "File",
            }
        ),
        "trainingImage",
        "make the module a script",
    ),
    "a regular expression that is none": (
        with_(
            AlgorithmSpecification={
                **GOOD["AlgorithmSpecification"],
                "MetricDefinitions": [{"Name": "a", "Regex": "a"}, {"Name": "b", "Regex": "(loss"}],
            }
        ),
        "algorithmSpecification.metricDefinitions.2.member.regex",
        "(loss",
    ),
    "no resources": (
        {name: value for name, value in GOOD.items() if name != "ResourceConfig"},
        "resourceConfig",
        "needs ResourceConfig",
    ),
    "rules of a debugger": (
        with_(DebugRuleConfigurations=[{"RuleConfigurationName": "r", "RuleEvaluatorImage": "i"}]),
        "debugRuleConfigurations",
        "leave them out",
    ),
    "TensorBoard's files": (
        with_(TensorBoardOutputConfig={"S3OutputPath": "s3://bucket/tb"}),
        "tensorBoardOutputConfig",
        "SM_OUTPUT_DATA_DIR",
    ),
    "marketplace": (
        with_(AlgorithmSpecification={"AlgorithmName": "other", "TrainingInputMode": "File"}),
        "algorithmName",
        "other",
    ),
}


def check(request: dict[str, Any]) -> None:
    """Refuse as the service does: first by the table, then by the conditions on several members."""
    operation("sagemaker", "CreateTrainingJob", "json").refuse(request)
    check_training_request(request)


@pytest.mark.parametrize("case", list(REFUSED))
def test_what_cannot_be_honoured_is_refused_by_name(case: str) -> None:
    request, member, value = REFUSED[case]
    with pytest.raises(AwsError) as refusal:
        check(request)
    assert refusal.value.code == "ValidationException"
    assert member in refusal.value.message
    assert value in refusal.value.message
    assert refusal.value.status == 400


ACCEPTED = {
    "the plain request": GOOD,
    "what is asked for by nobody": with_(
        EnableNetworkIsolation=False,
        EnableInterContainerTrafficEncryption=False,
        DebugRuleConfigurations=[],
        OutputDataConfig={"S3OutputPath": "s3://bucket/out", "KmsKeyId": ""},
        RemoteDebugConfig={"EnableRemoteDebug": False},
    ),
    "distributions that are switched off": with_(
        HyperParameters={
            "sagemaker_mpi_enabled": "false",
            "sagemaker_mpi_custom_mpi_options": '""',
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": '"local"',
            "sagemaker_training_compiler_enabled": '"false"',
            "mp_parameters": "{}",
        }
    ),
    "parameter servers, without effect on one instance": with_(
        HyperParameters={"sagemaker_parameter_server_enabled": "true"}
    ),
    "steps that are a script's own": with_(HyperParameters={"training_steps": "1000", "checkpoint_path": "x"}),
    "shell characters in values": with_(
        HyperParameters={"note": "; touch x", "q": "$(id) `id`", "--": "-v", "a b": "="}
    ),
    "loader variables, inside the sandbox": with_(Environment={"LD_PRELOAD": "/x.so", "PYTHONPATH": "/x"}),
    "debugger defaults of SDK v2": with_(
        DebugHookConfig={"S3OutputPath": "s3://bucket/"}, ProfilerConfig={"S3OutputPath": "s3://bucket/"}
    ),
    "pipe mode of a channel": with_(
        InputDataConfig=[
            channel("a", InputMode="Pipe", CompressionType="Gzip", ShuffleConfig={"Seed": 7}),
            channel("b", InputMode="Pipe", RecordWrapperType="RecordIO", data_type="ManifestFile"),
            channel("c", InputMode="Pipe", data_type="AugmentedManifestFile", attributes=["image-ref", "label"]),
            channel("a_b"),
            channel("x_0"),
        ]
    ),
    "pipe mode of the job": with_(
        AlgorithmSpecification={**GOOD["AlgorithmSpecification"], "TrainingInputMode": "Pipe"},
        InputDataConfig=[channel("a", CompressionType="Gzip"), channel("b", InputMode="File"), channel("a_0")],
    ),
    "manifest in file mode": with_(InputDataConfig=[channel("a", data_type="ManifestFile")]),
    "20 channels": with_(InputDataConfig=[channel(f"c{i}") for i in range(20)]),
}


@pytest.mark.parametrize("case", list(ACCEPTED))
def test_what_can_be_honoured_passes(case: str) -> None:
    check(ACCEPTED[case])
