"""Refusals of CreateTrainingJob, which name the member, the value and what is allowed."""

import copy
from typing import Any

import pytest

from tidemill.control.admission import Capabilities
from tidemill.control.training.admission import check_training_request
from tidemill.errors import AwsError, ResourceLimitExceeded, ValidationException
from tidemill.executors.base import Capacity
from tidemill.wire.operations import operation

MOUNT = Capabilities(no_network="isolation is set to mount")
CLUSTER = Capabilities(clustered=True)

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


def of_groups(*names: str) -> dict[str, Any]:
    data = channel("a")
    data["DataSource"]["S3DataSource"]["InstanceGroupNames"] = list(names)
    return data


def group(name: str, count: int = 1) -> dict[str, Any]:
    return {"InstanceGroupName": name, "InstanceType": "local", "InstanceCount": count}


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
    "101 instances": (
        with_(ResourceConfig={"InstanceType": "local", "InstanceCount": 101, "VolumeSizeInGB": 1}),
        "instanceCount",
        "101",
    ),
    "more instances than fit into memory by name": (
        with_(ResourceConfig={"InstanceType": "local", "InstanceCount": 2**31 - 1, "VolumeSizeInGB": 1}),
        "instanceCount",
        str(2**31 - 1),
    ),
    "no instances": (
        with_(ResourceConfig={"InstanceType": "local", "InstanceCount": 0, "VolumeSizeInGB": 1}),
        "instanceCount",
        "0",
    ),
    "groups and a count": (
        with_(ResourceConfig={"InstanceGroups": [group("a")], "InstanceCount": 2, "VolumeSizeInGB": 1}),
        "resourceConfig.instanceCount",
        "each of the InstanceGroups has its own",
    ),
    "groups of one name": (
        with_(ResourceConfig={"InstanceGroups": [group("a"), group("a")], "VolumeSizeInGB": 1}),
        "instanceGroups.2.member.instanceGroupName",
        "names of groups are unique",
    ),
    "a group without an instance": (
        with_(ResourceConfig={"InstanceGroups": [group("a", 0)], "VolumeSizeInGB": 1}),
        "instanceGroups.1.member.instanceCount",
        "at least one instance",
    ),
    "101 instances in groups": (
        with_(ResourceConfig={"InstanceGroups": [group("a", 60), group("b", 41)], "VolumeSizeInGB": 1}),
        "instanceCount",
        "101",
    ),
    "a channel for a group that is not there": (
        with_(
            ResourceConfig={"InstanceGroups": [group("a"), group("b")], "VolumeSizeInGB": 1},
            InputDataConfig=[of_groups("c")],
        ),
        "inputDataConfig.1.member.dataSource.s3DataSource.instanceGroupNames",
        "one of a, b",
    ),
    "a channel for a group of a job without groups": (
        with_(InputDataConfig=[of_groups("c")]),
        "instanceGroupNames",
        "the job has no InstanceGroups",
    ),
    "a distribution over a group that is not there": (
        with_(HyperParameters={"sagemaker_distribution_instance_groups": '["a"]'}),
        "hyperParameters.sagemaker_distribution_instance_groups",
        "the job has no InstanceGroups",
    ),
    "checkpoints of a whole bucket": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/", "LocalPath": "/opt/ml/x"}),
        "checkpointConfig.s3Uri",
        "s3://bucket/",
    ),
    "checkpoints of no bucket": (
        with_(CheckpointConfig={"S3Uri": "http://bucket/c", "LocalPath": "/opt/ml/x"}),
        "checkpointConfig.s3Uri",
        "http://bucket/c",
    ),
    "checkpoints in /etc": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/etc"}),
        "checkpointConfig.localPath",
        "/etc",
    ),
    "checkpoints in /etc/x": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/etc/x"}),
        "checkpointConfig.localPath",
        "/etc/x",
    ),
    "checkpoints in /opt/ml": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml"}),
        "checkpointConfig.localPath",
        "/opt/ml",
    ),
    "checkpoints in /opt/ml/model": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/model"}),
        "checkpointConfig.localPath",
        "/opt/ml/model",
    ),
    "checkpoints in /opt/ml/input/x": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/input/x"}),
        "checkpointConfig.localPath",
        "/opt/ml/input/x",
    ),
    "checkpoints in /opt/ml/../x": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml/../x"}),
        "checkpointConfig.localPath",
        "/opt/ml/../x",
    ),
    "checkpoints in /opt/ml//x": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/opt/ml//x"}),
        "checkpointConfig.localPath",
        "/opt/ml//x",
    ),
    "checkpoints in opt/ml/x": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "opt/ml/x"}),
        "checkpointConfig.localPath",
        "opt/ml/x",
    ),
    "checkpoints in /tmp": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/tmp"}),
        "checkpointConfig.localPath",
        "/tmp",
    ),
    **{
        f"checkpoints in {path}": (
            with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": path}),
            "checkpointConfig.localPath",
            path,
        )
        for path in ("/usr/kept", "/lib64", "/proc/kept", "/run/kept", "/var/lib/kept", "/var/tmp", "/home", "/mnt")
    },
    "checkpoints in /": (
        with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": "/"}),
        "checkpointConfig.localPath",
        "/",
    ),
    "MPI without TensorFlow": (
        with_(
            AlgorithmSpecification={
                "TrainingImage": "sagemaker-scikit-learn:1.2-1-cpu-py3",
                "TrainingInputMode": "File",
            },
            HyperParameters={"sagemaker_mpi_enabled": "true"},
        ),
        "sagemaker_mpi_enabled",
        "use an image of TensorFlow",
    ),
    "data parallelism": (
        with_(HyperParameters={"sagemaker_distributed_dataparallel_enabled": "true"}),
        "sagemaker_distributed_dataparallel_enabled",
        "leave out distribution",
    ),
    "output while the job runs": (
        with_(HyperParameters={"sagemaker_s3_output": '"https://bucket/x"'}),
        "hyperParameters.sagemaker_s3_output",
        "expected s3://bucket/key",
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
    "TensorBoard's files": (
        with_(TensorBoardOutputConfig={"S3OutputPath": "s3://bucket/tb", "LocalPath": "/logs"}),
        "tensorBoardOutputConfig.localPath",
        "below /opt/ml",
    ),
    "marketplace": (
        with_(AlgorithmSpecification={"AlgorithmName": "other", "TrainingInputMode": "File"}),
        "algorithmName",
        "other",
    ),
}


def check(request: dict[str, Any]) -> None:
    """Refuse a request as the service does: first by the table, then by the conditions on several members."""
    operation("sagemaker", "CreateTrainingJob", "json").refuse(request)
    check_training_request(request)


@pytest.mark.parametrize("case", list(REFUSED))
def test_members_that_cannot_be_honored_are_refused_by_name(case: str) -> None:
    request, member, value = REFUSED[case]
    with pytest.raises(AwsError) as refusal:
        check(request)
    assert refusal.value.code == "ValidationException"
    assert member in refusal.value.message
    assert value in refusal.value.message
    assert refusal.value.status == 400


STRATEGIES = ("sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled")
TWO = {"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1}
ACCEPTED = {
    "the plain request": GOOD,
    "what is asked for by nobody": with_(
        EnableNetworkIsolation=False,
        EnableInterContainerTrafficEncryption=False,
        DebugRuleConfigurations=[],
        OutputDataConfig={"S3OutputPath": "s3://bucket/out", "KmsKeyId": ""},
        RemoteDebugConfig={"EnableRemoteDebug": False},
    ),
    "kms keys": with_(
        OutputDataConfig={"S3OutputPath": "s3://bucket/out", "KmsKeyId": "alias/mine"},
        ResourceConfig={**TWO, "InstanceCount": 1, "VolumeKmsKeyId": "1234abcd"},
    ),
    **{
        f"checkpoints in {path}": with_(CheckpointConfig={"S3Uri": "s3://bucket/c", "LocalPath": path})
        for path in (
            "/checkpoints",
            "/test/checkpoint/path",
            "/mnt/x",
            "/home/me/x",
            "/var/tmp/x",
            "/var/kept",
            "/root/x",
        )
    },
    "a closed network": with_(EnableNetworkIsolation=True, EnableInterContainerTrafficEncryption=True),
    "distributions that are switched off": with_(
        HyperParameters={
            "sagemaker_mpi_enabled": "false",
            "sagemaker_mpi_custom_mpi_options": '""',
            "sagemaker_distributed_dataparallel_enabled": "false",
            "sagemaker_instance_type": '"local"',
            "sagemaker_training_compiler_enabled": '"true"',
            "sagemaker_training_compiler_debug_mode": "false",
            "mp_parameters": "{}",
        }
    ),
    "MPI": with_(
        ResourceConfig={"InstanceType": "local", "InstanceCount": 2, "VolumeSizeInGB": 1},
        HyperParameters={"sagemaker_mpi_enabled": "true"},
    ),
    "model parallelism": with_(HyperParameters={"sagemaker_mpi_enabled": "true", "mp_parameters": '{"partitions": 2}'}),
    "parameter servers, without effect on one instance": with_(
        HyperParameters={"sagemaker_parameter_server_enabled": "true"}
    ),
    "parameter servers": with_(ResourceConfig=TWO, HyperParameters={"sagemaker_parameter_server_enabled": "true"}),
    "several workers": with_(HyperParameters={"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}),
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
def test_requests_that_can_be_honored_are_accepted(case: str) -> None:
    check(ACCEPTED[case])


@pytest.mark.parametrize(
    ("request_", "member"),
    [
        (with_(EnableNetworkIsolation=True), "enableNetworkIsolation"),
        (
            with_(EnableInterContainerTrafficEncryption=True, ResourceConfig=TWO),
            "enableInterContainerTrafficEncryption",
        ),
        *(
            (with_(HyperParameters={name: "true"}, ResourceConfig=TWO), f"hyperParameters.{name}")
            for name in STRATEGIES
        ),
    ],
)
def test_jobs_that_need_a_separate_network_are_refused_if_there_is_none(request_: dict[str, Any], member: str) -> None:
    with pytest.raises(AwsError, match="isolation is set to mount") as refusal:
        check_training_request(request_, capabilities=MOUNT)
    assert member in refusal.value.message
    check_training_request(request_)


@pytest.mark.parametrize("name", STRATEGIES)
def test_one_instance_needs_no_separate_ports(name: str) -> None:
    check_training_request(with_(HyperParameters={name: "true"}), capabilities=MOUNT)
    check_training_request(with_(HyperParameters={name: "false"}, ResourceConfig=TWO), capabilities=MOUNT)


def test_one_instance_has_no_traffic_that_would_need_a_network() -> None:
    check_training_request(with_(EnableInterContainerTrafficEncryption=True), capabilities=MOUNT)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"EnableNetworkIsolation": True}, "'enableNetworkIsolation' is not allowed: the instances of a cluster share"),
        ({"EnableInterContainerTrafficEncryption": True, "ResourceConfig": TWO}, "send theirs in the clear"),
        (
            {
                "EnableInterContainerTrafficEncryption": True,
                "ResourceConfig": TWO,
                "HyperParameters": {"sagemaker_mpi_enabled": "true"},
            },
            "only what model parallelism sends is encrypted",
        ),
    ],
)
def test_requests_that_cluster_machines_cannot_honor_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationException, match=words):
        check_training_request(with_(**changes), capabilities=CLUSTER)


def test_a_cluster_has_ports_for_every_instance() -> None:
    mirrored = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
    check_training_request(with_(HyperParameters=mirrored, ResourceConfig=TWO), capabilities=CLUSTER)
    check_training_request(
        with_(HyperParameters={"sagemaker_mpi_enabled": "true"}, ResourceConfig=TWO), capabilities=CLUSTER
    )
    check_training_request(with_(EnableInterContainerTrafficEncryption=True), capabilities=CLUSTER)
    cut = {"sagemaker_mpi_enabled": "true", "mp_parameters": '{"partitions": 2}'}
    check_training_request(
        with_(EnableInterContainerTrafficEncryption=True, HyperParameters=cut, ResourceConfig=TWO), capabilities=CLUSTER
    )


GPU_IMAGE = {"TrainingImage": "tensorflow-training:2.21.0-gpu-py311", "TrainingInputMode": "File"}


def of_gpus(count: int) -> dict[str, Any]:
    resources = {"InstanceType": "ml.g4dn.xlarge", "InstanceCount": count, "VolumeSizeInGB": 1}
    return with_(AlgorithmSpecification=GPU_IMAGE, ResourceConfig=resources)


@pytest.mark.parametrize(
    ("request_", "capacity", "message"),
    [
        (
            with_(ResourceConfig={**TWO, "InstanceCount": 3}),
            Capacity(instances=2, cpus=2, gpus=0),
            "at most 2, or raise",
        ),
        (of_gpus(2), Capacity(instances=4, cpus=2, gpus=1), "2 instances with GPUs .* this machine has 1 GPU"),
        (of_gpus(2), Capacity(instances=4, cpus=2, gpus=1, shares_gpus=True), None),
        (of_gpus(2), Capacity(instances=4, cpus=2, gpus=0), None),
        (with_(ResourceConfig=TWO), Capacity(instances=2, cpus=1, gpus=0), None),
        (
            with_(ResourceConfig={**TWO, "InstanceCount": 1, "InstanceType": "ml.m5.24xlarge"}),
            Capacity(instances=1, cpus=1, gpus=0),
            None,
        ),
    ],
)
def test_only_a_job_that_could_never_start_is_refused(
    request_: dict[str, Any], capacity: Capacity, message: str | None
) -> None:
    capabilities = Capabilities(capacity=capacity)
    if message is None:
        check_training_request(request_, capabilities=capabilities)
        return
    with pytest.raises(
        ResourceLimitExceeded, match=rf"(?s)'resourceConfig\.instanceCount' is not allowed: .*{message}"
    ):
        check_training_request(request_, capabilities=capabilities)
