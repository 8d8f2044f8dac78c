"""Tidemill's CreateTrainingJob and the one that AWS's SDK v2 sends for the same arguments, on the same recorder."""

import json
import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tidemill.control.training.admission import check_training_request
from tidemill.sdk import InstanceGroup, Session, TensorFlow, TrainingCompilerConfig, TrainingInput
from tidemill.wire.operations import operation

PEERS = Path(__file__).parents[4] / ".venvs/peers/bin/python"

# Known differences, in addition to these members for a debugger and a profiler, which tidemill does not have:
# v2 sends EnableSageMakerMetricsTimeSeries for AWS's own metrics store; the image's registry and build differ; and
# under enable_network_isolation v2 sends the code as a channel, while tidemill's platform fetches it from outside.
ONLY_V2 = {"DebugHookConfig", "ProfilerConfig", "ProfilerRuleConfigurations"}

# Cases whose requests contain nothing that this service refuses, but everything that v2 sends by default.
SENT_UNASKED = ("plain", "hyperparameters", "pipe", "own-image")

BASE = {
    "role": "arn:aws:iam::000000000000:role/SageMakerRole",
    "instance_count": 1,
    "instance_type": "ml.c5.xlarge",
    "framework_version": "2.19.0",
    "py_version": "py312",
}

CASES: dict[str, dict[str, Any]] = {
    "plain": {"arguments": {}, "inputs": None},
    "hyperparameters": {
        "arguments": {
            "hyperparameters": {
                "epochs": 3,
                "rate": 0.1,
                "text": 'it\'s "q" $HOME;',
                "empty": "",
                "none": None,
                "nested": {"b": 1, "a": "x y"},
                "unicode": "é",
            }
        },
        "inputs": {"train": "s3://data/train", "test": "s3://data/test"},
    },
    "parameter-server": {
        "arguments": {"instance_count": 2, "distribution": {"parameter_server": {"enabled": True}}},
        "inputs": "s3://data/train",
    },
    "mpi": {
        "arguments": {
            "instance_type": "ml.p3.2xlarge",
            "distribution": {
                "mpi": {"enabled": True, "processes_per_host": 2, "custom_mpi_options": "--NCCL_DEBUG INFO"}
            },
        },
        "inputs": None,
    },
    "groups": {
        "arguments": {
            "instance_count": None,
            "instance_type": None,
            "instance_groups": [["trainer", "ml.p3.2xlarge", 1], ["readers", "ml.c5.xlarge", 2]],
        },
        "inputs": {"train": {"TrainingInput": ["s3://data/train", {"instance_groups": ["readers"]}]}},
    },
    "multi-worker-mirrored": {
        "arguments": {
            "instance_count": 2,
            "distribution": {"multi_worker_mirrored_strategy": {"enabled": True}},
            "model_dir": False,
        },
        "inputs": None,
    },
    "model-parallel": {
        "arguments": {
            "instance_type": "ml.p3.16xlarge",
            "framework_version": "2.6.3",
            "py_version": "py38",
            "distribution": {
                "mpi": {"enabled": True, "processes_per_host": 2},
                "smdistributed": {
                    "modelparallel": {"enabled": True, "parameters": {"partitions": 2, "microbatches": 4}}
                },
            },
        },
        "inputs": None,
    },
    "compiler": {
        "arguments": {
            "instance_type": "ml.p3.2xlarge",
            "framework_version": "2.9.2",
            "py_version": "py39",
            "compiler": True,
        },
        "inputs": None,
    },
    "pipe": {
        "arguments": {"input_mode": "Pipe"},
        "inputs": {
            "records": {"TrainingInput": ["s3://data/records", {"compression": "Gzip", "record_wrapping": "RecordIO"}]},
            "train": {
                "TrainingInput": [
                    "s3://data/manifest",
                    {
                        "distribution": "ShardedByS3Key",
                        "content_type": "text/csv",
                        "s3_data_type": "AugmentedManifestFile",
                        "input_mode": "Pipe",
                        "attribute_names": ["image", "label"],
                    },
                ]
            },
        },
    },
    "everything-else": {
        "arguments": {
            "volume_size": 50,
            "volume_kms_key": "key-1",
            "max_run": 100,
            "max_wait": 200,
            "use_spot_instances": True,
            "max_retry_attempts": 3,
            "output_path": "s3://results/here",
            "output_kms_key": "key-2",
            "code_location": "s3://code/prefix",
            "tags": [{"Key": "a", "Value": "b"}],
            "environment": {"A": "b"},
            "subnets": ["subnet-1"],
            "security_group_ids": ["sg-1"],
            "metric_definitions": [{"Name": "loss", "Regex": "loss: (.*)"}],
            "checkpoint_s3_uri": "s3://results/checkpoints",
            "checkpoint_local_path": "/opt/ml/checkpoints",
            "encrypt_inter_container_traffic": True,
            "container_log_level": 10,
            "model_uri": "s3://results/old/model.tar.gz",
            "keep_alive_period_in_seconds": 60,
        },
        "inputs": "s3://data/train",
    },
    "own-image": {
        "arguments": {
            "framework_version": None,
            "py_version": None,
            "model_dir": "s3://results/models",
            "image_uri": "000000000000.dkr.ecr.us-west-2.amazonaws.com/tensorflow-training:2.21.0-cpu-py311",
        },
        "inputs": None,
    },
}


def channel(value: Any) -> Any:
    if isinstance(value, dict) and "TrainingInput" in value:
        uri, keywords = value["TrainingInput"]
        return TrainingInput(uri, **keywords)
    return value


def given(case: dict[str, Any], source: Path) -> dict[str, Any]:
    arguments = {**BASE, "entry_point": "train.py", "source_dir": str(source), **case["arguments"]}
    return {name: value for name, value in arguments.items() if value is not None}


def run_v2(url: str, source: Path, home: Path) -> None:
    config = home / "config.yaml"
    config.write_text("SchemaVersion: '1.0'\nSageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}\n")
    cases = [{"name": name, "arguments": given(c, source), "inputs": c["inputs"]} for name, c in CASES.items()]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "AKIA0",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config),
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        # Requests that are not for the recorder reach a closed port.
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
    }
    script = Path(__file__).with_name("aws_v2_client.py")
    ended = subprocess.run(
        [str(PEERS), str(script)], input=json.dumps(cases), env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-1000:]


def run_own_sdk(session: Session, source: Path) -> None:
    for name, case in CASES.items():
        arguments = given(case, source)
        if arguments.pop("compiler", False):
            arguments["compiler_config"] = TrainingCompilerConfig()
        if groups := arguments.pop("instance_groups", None):
            arguments["instance_groups"] = [InstanceGroup(*group) for group in groups]
        inputs = case["inputs"]
        if isinstance(inputs, dict):
            inputs = {key: channel(value) for key, value in inputs.items()}
        TensorFlow(sagemaker_session=session, **arguments).fit(inputs, wait=False, job_name=name)


def without_known_differences(request: dict[str, Any], *, image: bool) -> dict[str, Any]:
    kept = {name: value for name, value in request.items() if name not in ONLY_V2}
    algorithm = dict(kept["AlgorithmSpecification"])
    algorithm.pop("EnableSageMakerMetricsTimeSeries", None)
    if not image:
        # The same repository and version in another registry, with the name of the build appended.
        algorithm["TrainingImage"] = "-".join(algorithm["TrainingImage"].rpartition("/")[2].split("-")[:4])
    return {**kept, "AlgorithmSpecification": algorithm}


def packed_names(aws: Any) -> dict[tuple[str, str], list[str]]:
    found = {}
    for key, body in aws.objects.items():
        with tarfile.open(fileobj=BytesIO(body)) as tar:
            found[key] = sorted(tar.getnames())
    return found


@pytest.mark.skipif(not PEERS.exists(), reason="AWS's SDK v2 is not installed (.venvs/peers)")
def test_the_request_is_the_one_of_awss_sdk(
    aws: Any, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Tidemill's SDK refuses some of these arguments at the call, but their requests must be correct as well.
    monkeypatch.setattr("tidemill.sdk.estimator.check_offered", lambda arguments: None)
    source = tmp_path / "source"
    (source / "pkg").mkdir(parents=True)
    (source / "train.py").write_text("print()\n")
    (source / "pkg/__init__.py").write_text("")
    aws.buckets |= {"bucket", "results", "code"}
    run_v2(aws.url, source, tmp_path)
    theirs = {request["TrainingJobName"]: request for request in aws.named("CreateTrainingJob")}
    packed = packed_names(aws)
    aws.requests.clear()
    aws.objects.clear()
    session._default_bucket = "bucket"
    run_own_sdk(session, source)
    ours = {request["TrainingJobName"]: request for request in aws.named("CreateTrainingJob")}
    for name, case in CASES.items():
        image = "image_uri" in case["arguments"]
        expected = without_known_differences(theirs[name], image=image)
        assert without_known_differences(ours[name], image=image) == expected, name
    assert packed_names(aws) == packed
    for name in SENT_UNASKED:
        operation("sagemaker", "CreateTrainingJob", "json").refuse(theirs[name])
        check_training_request(theirs[name])
