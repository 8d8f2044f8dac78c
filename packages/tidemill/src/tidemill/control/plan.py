"""Create the specs of instances: the files, environment variables and inputs that a job's script or a server gets."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tidemill.control.channels import Channels, DataMissing, Listing, channel_config, reference
from tidemill.control.gpus import GpuPlan, GpusMissing, plan_gpus
from tidemill.control.observers import observer_files, observer_notices
from tidemill.control.synced import restored_checkpoints, synced_directories
from tidemill.core.compatibility import keys_named
from tidemill.core.frameworks import Frameworks
from tidemill.core.hosting import Endpoint, Instance, Variant
from tidemill.core.hyperparameters import decode
from tidemill.core.images import parse_image
from tidemill.core.instance_types import OFFERING_SHAPES, unoffered
from tidemill.core.limits import LimitPolicy
from tidemill.core.names import S3Uri, role_name
from tidemill.core.remotes import RemoteS3
from tidemill.core.segments import create_stream
from tidemill.core.training import InstanceGroup, TrainingJob, hosts_of_channel, instance_groups
from tidemill.core.transform import MEBIBYTE, TransformJob
from tidemill.executors.base import Capacity
from tidemill.instance.object_rows import ObjectRow, rows_of
from tidemill.instance.spec import ChannelSpec, Input, InstanceRef, InstanceSpec, ObjectReference, StreamName
from tidemill.store.objects.store import ObjectStore
from tidemill.wire.protocols.models import service_model

__all__ = [
    "ENDPOINT_LOG_GROUP",
    "TRAINING_LOG_GROUP",
    "TRANSFORM_LOG_GROUP",
    "DataMissing",
    "InstancePlanner",
    "instances_of",
]

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
TRANSFORM_LOG_GROUP = "/aws/sagemaker/TransformJobs"
ENDPOINT_LOG_GROUP = "/aws/sagemaker/Endpoints/"
_DEFAULT_RUNTIME_S = 86400
_DRAIN_S = 40.0
_ASYNC_TIMEOUT_S = "3600"
_USER_CODE_LIMITS = ("SAGEMAKER_MODEL_SERVER_TIMEOUT", "SAGEMAKER_GUNICORN_TIMEOUT_SECONDS")
_MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
_MIRRORED = "sagemaker_multi_worker_mirrored_strategy_enabled"
_COMPILER = "sagemaker_training_compiler_enabled"
_SUBMIT_DIRECTORY = "SAGEMAKER_SUBMIT_DIRECTORY"


class InstancePlanner:
    """Plans instances.

    Args:
        objects: Stores code and data.
        logs: Root directory of the log segments.
        region: Value of AWS_REGION in the instances.
        grace_s: Seconds between SIGTERM and SIGKILL when an instance is stopped.
        warm: Whether to fork scripts from a process that has imported TensorFlow.
        remotes: Remote S3 stores by bucket name or pattern. Default: none.
        capacity: Returns the executor's capacity, whose GPUs are planned. Default: no GPUs.
        limits: Determines the limits of all instances. Default: no limits.
        fast_file_fault: As in `Channels`. Default: empty.
        frameworks: Selects the environments. Default: without the setting ``images``.
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
        capacity: Callable[[], Capacity] | None = None,
        limits: LimitPolicy | None = None,
        fast_file_fault: Callable[[], str] = str,
        frameworks: Frameworks | None = None,
    ) -> None:
        self._objects = objects
        self._remotes = remotes or {}
        self._channels = Channels(objects, self._remotes, fast_file_fault=fast_file_fault)
        self._logs = logs
        self._region = region
        self._grace_s = grace_s
        self._warm = warm
        self._capacity = capacity
        self._limits = limits or LimitPolicy()
        self.frameworks = frameworks or Frameworks()

    def plan(
        self, job: TrainingJob, *, variables: Mapping[str, str]
    ) -> tuple[tuple[InstanceSpec, ...], dict[str, Any]]:
        """Return the specs of a training job's instances, and the digests of code and inputs for the job's record.

        May list many objects: call it outside the event loop.

        Args:
            job: The job.
            variables: Environment variables with the address and the keys of the service.

        Raises:
            DataMissing: Code or data does not exist, or the request cannot run with this version or its GPUs.
        """
        request = job.request
        try:
            gpus = self._plan_gpus(request)
            selection = self.frameworks.of_training(request, gpus=gpus.total)
        except ValueError as error:  # an earlier version of tidemill admitted it unchecked
            raise DataMissing(f"ClientError: {error}") from error
        code = self._code(request)
        mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
        channels = request.get("InputDataConfig", ())
        inputs = [self._channels.resolve(each, job_mode=mode) for each in channels]
        groups = instance_groups(request["ResourceConfig"])
        volume_gib = request["ResourceConfig"].get("VolumeSizeInGB")
        limits = {
            host: self._limits.of(group.instance_type, volume_gib=volume_gib)
            for group in groups
            for host in group.hosts
        }
        takers = [hosts_of_channel(groups, each) for each in channels]
        refs = instances_of(job)
        first = InstanceSpec(
            ref=refs[0],
            kind="training",
            job_name=job.name,
            hosts=job.hosts,
            framework_version=selection.framework.version,
            python=selection.python,
            log=StreamName(TRAINING_LOG_GROUP, job.log_streams[0]),
            notices=(
                *selection.notices,
                *_unoffered(*(group.instance_type for group in groups)),
                *gpus.notices,
                *observer_notices(request),
            ),
            variables=self._variables(job) | dict(variables),
            code=code,
            remotes={name: self._remotes[name] for channel, _ in inputs for name in _remotes_of(channel)},
            synced=synced_directories(request),
            restored=tuple(restored_checkpoints(self._objects, request)),
            entrypoint=_entrypoint(request["AlgorithmSpecification"]),
            max_runtime_s=request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME_S),
            grace_s=self._grace_s,
            closed=bool(request.get("EnableNetworkIsolation")),
            encrypted=bool(request.get("EnableInterContainerTrafficEncryption")),
            serves_network=bool(decode({_MIRRORED: request.get("HyperParameters", {}).get(_MIRRORED, "")})[_MIRRORED]),
            artifacts_uri=str(S3Uri.parse(request["OutputDataConfig"]["S3OutputPath"]) / job.name / "output"),
            compiler_cache=_compiler_cache(request),
        )
        record = {
            "code": {"uri": code.uri, "sha256": code.sha256} if code else None,
            "inputs": {channel.name: digest for channel, digest in inputs},
        }
        of_keys = _key_notices("CreateTrainingJob", request)
        specs = tuple(
            replace(
                first,
                ref=ref,
                notices=first.notices + (of_keys if ref.instance_index == 0 else ()),
                gpus=gpus.counts[job.hosts[ref.instance_index]],
                limits=limits[job.hosts[ref.instance_index]],
                # GPU drivers do not survive a fork, and the limits do not cover a forked script: the script is no
                # descendant of the process to which they apply.
                warm=self._warm
                and not gpus.counts[job.hosts[ref.instance_index]]
                and not limits[job.hosts[ref.instance_index]],
                log=self._stream(TRAINING_LOG_GROUP, job.log_streams[ref.instance_index]),
                config=_config_files(job, groups, host=job.hosts[ref.instance_index]),
                channels=tuple(
                    _share(channel, source, hosts.index(job.hosts[ref.instance_index]), len(hosts))
                    for (channel, _), source, hosts in zip(inputs, channels, takers, strict=True)
                    if job.hosts[ref.instance_index] in hosts
                ),
            )
            for ref in refs
        )
        return specs, record

    def _plan_gpus(self, request: Mapping[str, Any]) -> GpuPlan:
        capacity = self._capacity() if self._capacity else None
        try:
            return plan_gpus(
                request,
                present=capacity.gpus if capacity else 0,
                shared=capacity is not None and capacity.shares_gpus,
                frameworks=self.frameworks,
            )
        except GpusMissing as error:
            raise DataMissing(str(error)) from error

    def plan_endpoint(
        self, endpoint: Endpoint, variant: Variant, instance: Instance, *, variables: Mapping[str, str]
    ) -> InstanceSpec:
        """Return the spec of an instance of a variant.

        Args:
            endpoint: The endpoint.
            variant: The variant, with its model.
            instance: The instance.
            variables: Environment variables with the address and the keys of the service; those of the model win.

        Raises:
            DataMissing: The model archive does not exist.
        """
        return self._server(
            variant.container,
            variables={
                **variables,
                **self._endpoint_variables(variant, asynchronous=_is_asynchronous(endpoint, instance)),
            },
            ref=InstanceRef(instance.job_id, instance.index),
            kind="endpoint",
            job_name=endpoint.name,
            hosts=tuple(f"algo-{i + 1}" for i in range(instance.index + 1)),  # servers do not contact each other
            log=self._stream(ENDPOINT_LOG_GROUP + endpoint.name, instance.log_stream),
            instance_type=variant.request.get("InstanceType", ""),
        )

    def plan_transform(self, job: TransformJob, index: int, *, variables: Mapping[str, str]) -> InstanceSpec:
        """Return the spec of one instance of a transform job: a model server, as for an endpoint.

        Args:
            job: The job.
            index: Index of the instance; 0 is ``algo-1``.
            variables: Environment variables with the address and the keys of the service; those of the model win.

        Raises:
            DataMissing: The model archive does not exist.
        """
        return self._server(
            job.container,
            variables={**variables, **self._transform_variables(job)},
            ref=InstanceRef(job.job_id, index),
            kind="transform",
            job_name=job.name,
            hosts=tuple(f"algo-{i + 1}" for i in range(len(job.log_streams))),
            log=self._stream(TRANSFORM_LOG_GROUP, job.log_streams[index]),
            notices=_key_notices("CreateTransformJob", job.request) if index == 0 else (),
            instance_type=job.request["TransformResources"].get("InstanceType", ""),
        )

    def _server(
        self,
        container: Mapping[str, Any],
        *,
        variables: Mapping[str, str],
        instance_type: str,
        notices: tuple[str, ...] = (),
        **place: Any,
    ) -> InstanceSpec:
        """Return the spec of an instance that serves the model of a container definition."""
        image = parse_image(container.get("Image", ""))
        code = variables.get(_SUBMIT_DIRECTORY, "") if image.serves_python_handlers else ""
        model = None if _MULTI_MODEL in variables else self._archive(container["ModelDataUrl"])
        try:
            selection = self.frameworks.of_serving(container.get("Image", ""))
        except ValueError as error:  # an earlier version of tidemill admitted it unchecked
            raise DataMissing(f"ClientError: {error}") from error
        return InstanceSpec(
            **place,
            framework_version=selection.framework.version,
            notices=(*selection.notices, *_unoffered(instance_type), *notices),
            limits=self._limits.of(instance_type, volume_gib=None),
            serves="python" if image.serves_python_handlers else "tensorflow-serving",
            variables=variables,
            code=self._source(code, name=_SUBMIT_DIRECTORY),
            model=model,
            grace_s=min(self._grace_s, _DRAIN_S),
        )

    def target_archive(self, variant: Variant, target: str) -> ObjectReference:
        """Return the archive of one model of a multi-model variant.

        Args:
            variant: The variant.
            target: TargetModel of a request: the part of the archive's key after ModelDataUrl.

        Raises:
            DataMissing: The archive does not exist.
        """
        return self._archive(variant.container["ModelDataUrl"].removesuffix("/") + "/" + target.removeprefix("/"))

    def _archive(self, url: str) -> ObjectReference:
        uri = S3Uri.parse(url)
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            raise DataMissing(f"ClientError: the model archive {uri} does not exist")
        return reference(info, name="model.tar.gz")

    def _endpoint_variables(self, variant: Variant, *, asynchronous: bool) -> dict[str, str]:
        patience = dict.fromkeys(_USER_CODE_LIMITS, _ASYNC_TIMEOUT_S) if asynchronous else {}
        variables = {**patience, **self._region_variables, **variant.container.get("Environment", {})}
        variables["AWS_REGION"] = self._region
        variables.pop(_MULTI_MODEL, None)  # the container's Mode decides
        return variables | ({_MULTI_MODEL: "true"} if variant.is_multi_model else {})

    def _transform_variables(self, job: TransformJob) -> dict[str, str]:
        """Return the environment variables of model and job, and those that SageMaker sets for transform jobs."""
        timeout_s = job.request.get("ModelClientConfig", {}).get("InvocationsTimeoutInSeconds", 600)
        variables = {
            # The job waits that long for an answer, so user code may take as long, unless the user sets other limits.
            **dict.fromkeys(_USER_CODE_LIMITS, str(timeout_s)),
            **self._region_variables,
            **job.container.get("Environment", {}),
            **job.request.get("Environment", {}),
            "AWS_REGION": self._region,
            "SAGEMAKER_BATCH": "true",
            "SAGEMAKER_BATCH_STRATEGY": job.strategy,
            "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(job.max_payload_bytes // MEBIBYTE),
            "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": str(job.max_concurrent),
        }
        variables.pop(_MULTI_MODEL, None)  # a transform job has one model
        return variables

    def _stream(self, group: str, stream: str) -> StreamName:
        """Create a log stream, so that it is listed even before its first line."""
        create_stream(self._logs, group, stream)
        return StreamName(group, stream)

    @property
    def _region_variables(self) -> dict[str, str]:
        return {
            "AWS_REGION": self._region,
            "AWS_DEFAULT_REGION": self._region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _variables(self, job: TrainingJob) -> dict[str, str]:
        return {
            **job.request.get("Environment", {}),
            **self._region_variables,
            "TRAINING_JOB_NAME": job.name,
            "TRAINING_JOB_ARN": job.arn,
        }

    def _code(self, request: Mapping[str, Any]) -> ObjectReference | None:
        name = _SUBMIT_DIRECTORY.lower()
        return self._source(_decoded(request.get("HyperParameters", {}).get(name, "")), name=name)

    def _source(self, text: str, *, name: str) -> ObjectReference | None:
        """Return the submitted code; None if ``text`` is not an S3 URI."""
        if not text.startswith("s3://"):
            return None
        try:
            uri = S3Uri.parse(text)
        except ValueError as error:
            raise DataMissing(f"ClientError: {name}: {error}") from error
        info = self._objects.head(uri.bucket, uri.key)
        if info is None:
            what = "training code" if name.islower() else "code of the endpoint"
            raise DataMissing(f"ClientError: the {what} {uri} does not exist; upload it before creating the job")
        return reference(info, name="sourcedir.tar.gz")


def _is_asynchronous(endpoint: Endpoint, instance: Instance) -> bool:
    """Return whether an instance belongs to a deployment with an AsyncInferenceConfig."""
    deployment = endpoint.deployment_of(instance)
    return deployment is not None and deployment.asynchronous is not None


def instances_of(job: TrainingJob) -> tuple[InstanceRef, ...]:
    """Return references to the instances of a job's current attempt, ``algo-1`` first."""
    return tuple(InstanceRef(job.job_id, index, job.attempt) for index in range(len(job.log_streams)))


@dataclass(frozen=True, slots=True)
class _Part:
    """Every ``step``-th of ``inputs``, starting at index ``first``. Can be iterated repeatedly, like ``inputs``."""

    inputs: Iterable[Input]
    first: int
    step: int

    def __iter__(self) -> Iterator[Input]:
        return islice(iter(self.inputs), self.first, None, self.step)

    def rows(self) -> Iterator[Sequence[ObjectRow]]:
        """Yield the objects in batches; see `tidemill.instance.object_rows.ObjectRows`."""
        first = self.first
        for batch in rows_of(self.inputs):
            yield batch[first :: self.step]
            first = (first - len(batch)) % self.step


def _share(channel: ChannelSpec, source: Mapping[str, Any], index: int, instances: int) -> ChannelSpec:
    """Return an instance's share of a channel. In Pipe mode, the feeder selects the items anew for each epoch."""
    if source["DataSource"]["S3DataSource"].get("S3DataDistributionType") != "ShardedByS3Key" or instances == 1:
        return channel
    if channel.input_mode == "Pipe":
        return replace(channel, share=(index, instances))
    digest = channel.digest and hashlib.sha256(f"{channel.digest}:{index}/{instances}".encode()).hexdigest()
    return replace(channel, objects=_Part(channel.objects, index, instances), digest=digest)


def _remotes_of(channel: ChannelSpec) -> set[str]:
    return channel.objects.remotes if isinstance(channel.objects, Listing) else set()


def _config_files(job: TrainingJob, groups: Sequence[InstanceGroup], *, host: str) -> dict[str, Any]:
    request = job.request
    mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
    (own,) = (group for group in groups if host in group.hosts)
    return {
        "hyperparameters": request.get("HyperParameters", {}),
        "inputdataconfig": {
            c["ChannelName"]: channel_config(c, job_mode=mode)
            for c in request.get("InputDataConfig", ())
            if host in hosts_of_channel(groups, c)
        },
        "resourceconfig": {
            "current_host": host,
            "current_instance_type": own.instance_type,
            "current_group_name": own.name,
            "current_instance_group": own.name,
            "hosts": sorted(job.hosts),
            "network_interface_name": "lo",
            "instance_groups": [
                {"instance_group_name": group.name, "instance_type": group.instance_type, "hosts": sorted(group.hosts)}
                for group in groups
            ],
        },
        **({"checkpointconfig": request["CheckpointConfig"]} if "CheckpointConfig" in request else {}),
        **observer_files(request),
        "trainingjobconfig": request,
        "metric-definition-regex": request["AlgorithmSpecification"].get("MetricDefinitions", []),
    }


def _entrypoint(algorithm: Mapping[str, Any]) -> tuple[str, ...]:
    return (*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ()))


def _decoded(value: str) -> str:
    """Return the text of a hyperparameter that some generations of SDKs send as JSON, and others unencoded."""
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return decoded if isinstance(decoded, str) else value


def _compiler_cache(request: Mapping[str, Any]) -> str:
    """Return the name of the compiler's cache directory, which all jobs of a role share; "" without the compiler."""
    enabled = _decoded(request.get("HyperParameters", {}).get(_COMPILER, ""))
    if str(enabled).strip().lower() != "true":
        return ""
    return hashlib.sha256(role_name(request["RoleArn"]).encode()).hexdigest()


def _key_notices(operation: str, request: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the line for a job's log that names the KMS keys in its request; none without keys."""
    named = [f"{member} {key}" for member, key in keys_named("sagemaker", operation, request).items()]
    if not named:
        return ()
    return (
        f"tidemill: nothing is encrypted with {' or '.join(named)}: tidemill records keys and has none. Keep the state"
        ' directory on an encrypted disk, or set encryption = "refuse" to refuse such requests',
    )


def _unoffered(*instance_types: str) -> tuple[str, ...]:
    """Return a line for the log for each instance type that AWS does not offer."""
    model = service_model("sagemaker")
    offered = {each for shape in OFFERING_SHAPES for each in model.shape_for(shape).metadata["enum"]}
    lines = (unoffered(each, offered=offered) for each in dict.fromkeys(instance_types))
    return tuple(f"tidemill: {line}" for line in lines if line)
