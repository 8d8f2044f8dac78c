"""From a training job to the spec of its instance: the files, variables and inputs that its script is promised."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tidemill.core.hosting import Endpoint
from tidemill.core.images import parse_image
from tidemill.core.names import S3Uri
from tidemill.core.segments import create_stream
from tidemill.core.training import TrainingJob
from tidemill.executors.base import ChannelSpec, InstanceRef, InstanceSpec, ObjectFile
from tidemill.executors.environments import choose
from tidemill.store.objects import ObjectInfo, ObjectStore

__all__ = ["ENDPOINT_LOG_GROUP", "TRAINING_LOG_GROUP", "DataMissing", "InstancePlanner"]

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
ENDPOINT_LOG_GROUP = "/aws/sagemaker/Endpoints/"
_DEFAULT_RUNTIME_S = 86400
_DRAIN_S = 40.0


class DataMissing(Exception):
    """The job's code or data is not where the request says; the text becomes its FailureReason."""


class InstancePlanner:
    """Plans instances.

    Args:
        objects: Where code and data lie.
        logs: Root directory of the log segments.
        region: Told to the script.
        grace_s: Between SIGTERM and SIGKILL.
        warm: Fork scripts from a process that has TensorFlow imported.
    """

    def __init__(self, objects: ObjectStore, *, logs: Path, region: str, grace_s: float, warm: bool) -> None:
        self._objects = objects
        self._logs = logs
        self._region = region
        self._grace_s = grace_s
        self._warm = warm

    def plan(self, job: TrainingJob, *, variables: Mapping[str, str]) -> tuple[InstanceSpec, dict[str, Any]]:
        """The spec of the job's instance, and the part of its record that names inputs by digest.

        May list many objects: call it outside the event loop.

        Args:
            job: The job.
            variables: Endpoint and keys of the service.

        Raises:
            DataMissing: Code or data is not there.
        """
        request = job.request
        version = parse_image(request["AlgorithmSpecification"].get("TrainingImage", "")).framework_version
        environment = choose(version)
        code = self._code(request)
        channels = tuple(self._channel(channel) for channel in request.get("InputDataConfig", ()))
        spec = InstanceSpec(
            ref=InstanceRef(job.job_id, 0),
            kind="training",
            job_name=job.name,
            hosts=job.hosts,
            framework_version=environment.name.removeprefix("tf-"),
            log_directory=create_stream(self._logs, TRAINING_LOG_GROUP, job.log_streams[0]),
            notices=(environment.notice,) if environment.notice else (),
            variables=self._variables(job) | dict(variables),
            config=_config_files(job),
            code=code,
            channels=channels,
            entrypoint=_entrypoint(request["AlgorithmSpecification"]),
            max_runtime_s=request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME_S),
            grace_s=self._grace_s,
            warm=self._warm,
        )
        record = {
            "code": {"uri": code.uri, "sha256": code.sha256} if code else None,
            "inputs": {channel.name: _digest(channel) for channel in channels},
        }
        return spec, record

    def plan_endpoint(self, endpoint: Endpoint, index: int) -> InstanceSpec:
        """The spec of one instance of an endpoint. It gets no keys: a model needs none, and a model is code.

        Raises:
            DataMissing: The model archive is not there.
        """
        container = endpoint.model.get("PrimaryContainer") or endpoint.model["Containers"][0]
        uri = S3Uri.parse(container["ModelDataUrl"])
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise DataMissing(f"ClientError: the model archive {uri} does not exist")
        environment = choose(parse_image(container.get("Image", "")).framework_version)
        return InstanceSpec(
            ref=InstanceRef(endpoint.instance_id, index),
            kind="endpoint",
            job_name=endpoint.name,
            hosts=tuple(f"algo-{i + 1}" for i in range(len(endpoint.log_streams))),
            framework_version=environment.name.removeprefix("tf-"),
            log_directory=create_stream(self._logs, ENDPOINT_LOG_GROUP + endpoint.name, endpoint.log_streams[index]),
            notices=(environment.notice,) if environment.notice else (),
            variables={**container.get("Environment", {}), "AWS_REGION": self._region},
            model=self._file(info, name="model.tar.gz"),
            grace_s=min(self._grace_s, _DRAIN_S),
        )

    def _variables(self, job: TrainingJob) -> dict[str, str]:
        return {
            **job.request.get("Environment", {}),
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "TRAINING_JOB_NAME": job.name,
            "TRAINING_JOB_ARN": job.arn,
        }

    def _code(self, request: Mapping[str, Any]) -> ObjectFile | None:
        text = _decoded(request.get("HyperParameters", {}).get("sagemaker_submit_directory", ""))
        if not text.startswith("s3://"):
            return None
        try:
            uri = S3Uri.parse(text)
        except ValueError as error:
            raise DataMissing(f"ClientError: sagemaker_submit_directory: {error}") from error
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise DataMissing(f"ClientError: the training code {uri} does not exist; upload it before creating the job")
        return self._file(info, name="sourcedir.tar.gz")

    def _channel(self, channel: Mapping[str, Any]) -> ChannelSpec:
        name = channel["ChannelName"]
        uri = S3Uri.parse(channel["DataSource"]["S3DataSource"]["S3Uri"])
        if not self._objects.bucket_exists(uri.bucket):
            raise DataMissing(f"ClientError: channel {name!r}: the bucket of {uri} does not exist")
        files = tuple(self._files(uri))
        if not files:
            raise DataMissing(f"ClientError: channel {name!r}: no S3 objects found under {uri}; check the prefix")
        return ChannelSpec(name=name, objects=files)

    def _files(self, uri: S3Uri) -> Iterator[ObjectFile]:
        # As on SageMaker: files keep their path below the last "/" of the prefix; folder markers make no file.
        base = len(uri.key.rpartition("/")[0]) + 1 if "/" in uri.key else 0
        for info in self._objects.list_all(uri.bucket, uri.key):
            if not info.key.endswith("/"):
                name = info.key[base:]
                if uri.key and not uri.key.endswith("/") and info.key.startswith(uri.key + "/"):
                    name = info.key[len(uri.key) + 1 :]
                yield self._file(info, name=name)

    def _file(self, info: ObjectInfo, *, name: str) -> ObjectFile:
        return ObjectFile(
            uri=f"s3://{info.bucket}/{info.key}",
            name=name,
            file=str(self._objects.file_of(info)),
            size_bytes=info.size_bytes,
            sha256=info.sha256,
        )


def _config_files(job: TrainingJob) -> dict[str, Any]:
    request = job.request
    instance_type = request["ResourceConfig"]["InstanceType"]
    group = "homogeneousCluster"
    return {
        "hyperparameters": request.get("HyperParameters", {}),
        "inputdataconfig": {c["ChannelName"]: _channel_config(c) for c in request.get("InputDataConfig", ())},
        "resourceconfig": {
            "current_host": job.hosts[0],
            "current_instance_type": instance_type,
            "current_group_name": group,
            "current_instance_group": group,
            "hosts": sorted(job.hosts),
            "network_interface_name": "lo",
            "instance_groups": [
                {"instance_group_name": group, "instance_type": instance_type, "hosts": sorted(job.hosts)}
            ],
        },
        "trainingjobconfig": request,
        "metric-definition-regex": request["AlgorithmSpecification"].get("MetricDefinitions", []),
    }


def _channel_config(channel: Mapping[str, Any]) -> dict[str, str]:
    config = {
        "TrainingInputMode": channel.get("InputMode", "File"),
        "S3DistributionType": channel["DataSource"]["S3DataSource"].get("S3DataDistributionType", "FullyReplicated"),
        "RecordWrapperType": channel.get("RecordWrapperType", "None"),
    }
    if channel.get("ContentType"):
        config["ContentType"] = channel["ContentType"]
    return config


def _entrypoint(algorithm: Mapping[str, Any]) -> tuple[str, ...]:
    return (*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ()))


def _decoded(value: str) -> str:
    """A hyperparameter that one generation of SDKs sends as JSON and another bare."""
    try:
        decoded = json.loads(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, str) else value


def _digest(channel: ChannelSpec) -> dict[str, Any]:
    digest = hashlib.sha256()
    count = size_bytes = 0
    for item in channel.objects:
        digest.update(f"{item.uri}\0{item.sha256}\n".encode())
        count += 1
        size_bytes += item.size_bytes
    return {"objects": count, "size_bytes": size_bytes, "sha256": digest.hexdigest()}
