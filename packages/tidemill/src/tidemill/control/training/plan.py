"""Create the specs of a training job's instances: the files, environment variables and inputs that its script gets."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, TypeVar

from tidemill.control.channels import ChannelListing, ChannelResolver, DataMissing, channel_config
from tidemill.control.gpus import GpuPlan, GpusMissing, plan_gpus
from tidemill.control.plan import key_notices, region_variables, source_of, unoffered_notices
from tidemill.control.training.observers import observer_files, observer_notices
from tidemill.control.training.synced import restored_checkpoints, synced_directories
from tidemill.core.frameworks import Frameworks
from tidemill.core.hyperparameters import decode
from tidemill.core.instances import InstanceRef, StreamName
from tidemill.core.limits import LimitPolicy
from tidemill.core.names import S3Uri, role_name
from tidemill.core.remotes import RemoteS3
from tidemill.core.training import HostGroup, TrainingJob, hosts_of_channel, instance_groups
from tidemill.executors.base import Capacity
from tidemill.instance.object_rows import ObjectRow, rows_of
from tidemill.instance.spec import ChannelSpec, Input, InstanceSpec
from tidemill.store.objects.store import ObjectStore

TRAINING_LOG_GROUP = TrainingJob.log_group
_DEFAULT_RUNTIME_S = 86400
_MIRRORED = "sagemaker_multi_worker_mirrored_strategy_enabled"
_COMPILER = "sagemaker_training_compiler_enabled"
_SUBMIT_DIRECTORY = "sagemaker_submit_directory"


_Planned = TypeVar("_Planned", bound=TrainingJob, contravariant=True)


class JobPlanner(Protocol[_Planned]):
    """Creates the specs of a job's instances. See `TrainingPlanner`."""

    def gpus_of(self, request: Mapping[str, Any]) -> int: ...

    def plan(
        self, job: _Planned, *, variables: Mapping[str, str]
    ) -> tuple[tuple[InstanceSpec, ...], dict[str, Any]]: ...


class TrainingPlanner:
    """Plans the instances of training jobs. It only reads: launching is the executor's work.

    Args:
        objects: Stores code and data.
        region: Value of AWS_REGION in the instances.
        grace_s: Seconds between SIGTERM and SIGKILL when an instance is stopped.
        warm: Whether to fork scripts from a process that has imported TensorFlow.
        remotes: Remote S3 stores by bucket name or pattern. Default: none.
        capacity: Returns the executor's capacity, whose GPUs are planned. Default: no GPUs.
        limits: Determines the limits of all instances. Default: no limits.
        fast_file_fault: As in `ChannelResolver`. Default: empty.
        frameworks: Selects the environments. Default: without the setting ``images``.
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
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
        self._channels = ChannelResolver(objects, self._remotes, fast_file_fault=fast_file_fault)
        self._region = region
        self._grace_s = grace_s
        self._warm = warm
        self._capacity = capacity
        self._limits = limits or LimitPolicy()
        self._frameworks = frameworks or Frameworks()

    def plan(
        self, job: TrainingJob, *, variables: Mapping[str, str]
    ) -> tuple[tuple[InstanceSpec, ...], dict[str, Any]]:
        """Return the specs of a training job's instances, and the digests of code and inputs for the job's record.

        May list many objects: call it outside the event loop.

        Args:
            variables: Environment variables with the address and the keys of the service.

        Raises:
            DataMissing: Code or data does not exist, or the request cannot run with this version or its GPUs.
        """
        request = job.run_request
        gpus = self._plan_gpus(request)
        mode = request["AlgorithmSpecification"].get("TrainingInputMode", "File")
        groups = instance_groups(request["ResourceConfig"])
        shared = self._shared_spec(job, groups, gpus, variables)
        inputs = [
            (hosts_of_channel(groups, source), source, *self._channels.resolve(source, job_mode=mode))
            for source in request.get("InputDataConfig", ())
        ]
        shared = replace(
            shared, remotes={name: self._remotes[name] for _, _, channel, _ in inputs for name in _remotes_of(channel)}
        )
        code = shared.code
        record = {
            "code": {"uri": code.uri, "sha256": code.sha256} if code else None,
            "inputs": {channel.name: digest for _, _, channel, digest in inputs},
        }
        volume_gib = request["ResourceConfig"].get("VolumeSizeInGB")
        types = {host: group.instance_type for group in groups for host in group.hosts}
        specs = []
        for ref, host, stream in zip(instances_of(job), job.hosts, job.log_streams, strict=True):
            limits = self._limits.of(types[host], volume_gib=volume_gib)
            of_keys = key_notices(job.create_operation, job.request) if ref.instance_index == 0 else ()
            spec = replace(
                shared,
                ref=ref,
                notices=shared.notices + of_keys,
                gpus=gpus.counts[host],
                limits=limits,
                instance_types=tuple(types[each] for each in job.hosts),
                # GPU drivers do not survive a fork, and the limits do not cover a forked script: the script is no
                # descendant of the process to which they apply.
                warm=self._warm and not gpus.counts[host] and not limits,
                log=StreamName(job.log_group, stream),
                config=_config_files(job, groups, host=host),
                channels=tuple(
                    _share(channel, source, hosts.index(host), len(hosts))
                    for hosts, source, channel, _ in inputs
                    if host in hosts
                ),
            )
            specs.append(spec)
        return tuple(specs), record

    def gpus_of(self, request: Mapping[str, Any]) -> int:
        """Return how many GPUs a job occupies: none if jobs share them.

        Args:
            request: The members of CreateTrainingJob.

        Raises:
            DataMissing: The machine has too few.
        """
        capacity = self._capacity() if self._capacity else None
        if capacity is None or capacity.shares_gpus:
            return 0
        try:
            return plan_gpus(request, present=capacity.gpus, frameworks=self._frameworks).total
        except GpusMissing as error:
            raise DataMissing(str(error)) from error
        except ValueError:  # a version that is not supported; `plan` reports it
            return 0

    def _plan_gpus(self, request: Mapping[str, Any]) -> GpuPlan:
        capacity = self._capacity() if self._capacity else None
        try:
            return plan_gpus(
                request,
                present=capacity.gpus if capacity else 0,
                shared=capacity is not None and capacity.shares_gpus,
                frameworks=self._frameworks,
            )
        except GpusMissing as error:
            raise DataMissing(str(error)) from error
        except ValueError as error:  # an earlier version of tidemill admitted it unchecked
            raise DataMissing(f"ClientError: {error}") from error

    def _shared_spec(
        self, job: TrainingJob, groups: Sequence[HostGroup], gpus: GpuPlan, variables: Mapping[str, str]
    ) -> InstanceSpec:
        """Return the spec of ``algo-1`` with everything that is the same for all instances."""
        request = job.run_request
        try:
            selection = self._frameworks.of_training(request, gpus=gpus.total)
        except ValueError as error:  # an earlier version of tidemill admitted it unchecked
            raise DataMissing(f"ClientError: {error}") from error
        values = request.get("HyperParameters", {})
        return InstanceSpec(
            ref=instances_of(job)[0],
            kind="training",
            job_name=job.name,
            hosts=job.hosts,
            framework_version=selection.framework.version,
            family=selection.framework.family,
            python=selection.python,
            log=StreamName(job.log_group, job.log_streams[0]),
            notices=(
                *selection.notices,
                *unoffered_notices(*(group.instance_type for group in groups)),
                *gpus.notices,
                *observer_notices(request),
            ),
            variables={
                **request.get("Environment", {}),
                **region_variables(self._region),
                "TRAINING_JOB_NAME": job.name,
                "TRAINING_JOB_ARN": job.arn,
                **variables,
            },
            code=source_of(self._objects, _decoded(values.get(_SUBMIT_DIRECTORY, "")), name=_SUBMIT_DIRECTORY),
            synced=synced_directories(request),
            restored=tuple(restored_checkpoints(self._objects, request)),
            entrypoint=_entrypoint(request["AlgorithmSpecification"]),
            max_runtime_s=request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", _DEFAULT_RUNTIME_S),
            grace_s=self._grace_s,
            closed=bool(request.get("EnableNetworkIsolation")),
            encrypted=bool(request.get("EnableInterContainerTrafficEncryption")),
            serves_network=bool(decode({_MIRRORED: values.get(_MIRRORED, "")})[_MIRRORED]),
            artifacts_uri=_artifacts_uri(request),
            compiler_cache=_compiler_cache(request),
        )


def instances_of(job: TrainingJob) -> tuple[InstanceRef, ...]:
    """Return references to the instances of a job's current attempt, ``algo-1`` first.

    Args:
        job: The job.
    """
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
    return channel.objects.remotes if isinstance(channel.objects, ChannelListing) else set()


def _config_files(job: TrainingJob, groups: Sequence[HostGroup], *, host: str) -> dict[str, Any]:
    request = job.run_request
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


def _artifacts_uri(request: Mapping[str, Any]) -> str:
    """Return the prefix of the archives of a job; "" for a job that has none."""
    if "OutputDataConfig" not in request:
        return ""
    return str(S3Uri.parse(request["OutputDataConfig"]["S3OutputPath"]) / request["TrainingJobName"] / "output")


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
    if enabled.strip().lower() != "true":
        return ""
    return hashlib.sha256(role_name(request["RoleArn"]).encode()).hexdigest()
