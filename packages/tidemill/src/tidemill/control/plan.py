"""From a training job to the spec of its instance: the files, variables and inputs that its script is promised."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidemill.control.channels import Channels, DataMissing, Listing, channel_config, object_file
from tidemill.core.hosting import Endpoint
from tidemill.core.images import parse_image
from tidemill.core.names import S3Uri
from tidemill.core.remotes import RemoteS3
from tidemill.core.segments import create_stream
from tidemill.core.training import TrainingJob
from tidemill.executors.base import ChannelSpec, InstanceRef, InstanceSpec, ObjectFile
from tidemill.executors.environments import choose
from tidemill.store.objects import ObjectStore

__all__ = ["ENDPOINT_LOG_GROUP", "TRAINING_LOG_GROUP", "DataMissing", "InstancePlanner"]

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
ENDPOINT_LOG_GROUP = "/aws/sagemaker/Endpoints/"
_DEFAULT_RUNTIME_S = 86400
_DRAIN_S = 40.0


class InstancePlanner:
    """Plans instances.

    Args:
        objects: Where code and data lie.
        logs: Root directory of the log segments.
        region: Told to the script.
        grace_s: Between SIGTERM and SIGKILL.
        warm: Fork scripts from a process that has TensorFlow imported.
        remotes: Where the data of other buckets lies, by bucket name or pattern.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        logs: Path,
        region: str,
        grace_s: float,
        warm: bool,
        remotes: Mapping[str, RemoteS3] | None = None,
    ) -> None:
        self._objects = objects
        self._remotes = remotes or {}
        self._channels = Channels(objects, self._remotes)
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
        mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
        inputs = [self._channels.resolve(each, job_mode=mode) for each in request.get("InputDataConfig", ())]
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
            channels=tuple(channel for channel, _ in inputs),
            remotes={name: self._remotes[name] for channel, _ in inputs for name in _remotes_of(channel)},
            entrypoint=_entrypoint(request["AlgorithmSpecification"]),
            max_runtime_s=request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME_S),
            grace_s=self._grace_s,
            warm=self._warm,
        )
        record = {
            "code": {"uri": code.uri, "sha256": code.sha256} if code else None,
            "inputs": {channel.name: digest for channel, digest in inputs},
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
            model=object_file(self._objects, info, name="model.tar.gz"),
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
        return object_file(self._objects, info, name="sourcedir.tar.gz")


def _remotes_of(channel: ChannelSpec) -> set[str]:
    return channel.objects.remotes if isinstance(channel.objects, Listing) else set()


def _config_files(job: TrainingJob) -> dict[str, Any]:
    request = job.request
    instance_type = request["ResourceConfig"]["InstanceType"]
    mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    group = "homogeneousCluster"
    return {
        "hyperparameters": request.get("HyperParameters", {}),
        "inputdataconfig": {
            c["ChannelName"]: channel_config(c, job_mode=mode) for c in request.get("InputDataConfig", ())
        },
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


def _entrypoint(algorithm: Mapping[str, Any]) -> tuple[str, ...]:
    return (*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ()))


def _decoded(value: str) -> str:
    """A hyperparameter that one generation of SDKs sends as JSON and another bare."""
    try:
        decoded = json.loads(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, str) else value
