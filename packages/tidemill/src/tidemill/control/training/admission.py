"""Check a CreateTrainingJob request beyond AWS's model and the table of refused members.

The rule is that of `tidemill.control.admission`. The checks are one list (`_CHECKS`): conditions that involve several
members, the format of texts, and what the service can honor on its machine (`Capabilities`). A check of members that a
request does not have is left out.
"""

import asyncio
import io
import re
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidemill.control.admission import (
    Capabilities,
    check_capacity,
    check_environment,
    check_network,
    check_s3_uri,
    check_target,
    refusal,
)
from tidemill.control.training.synced import synced_directories, synced_uris
from tidemill.core.compatibility.hyperparameters import LEGACY_MODE, REFUSED_HYPERPARAMETERS, hyperparameter_refusal
from tidemill.core.hyperparameters import decode
from tidemill.core.images import LEGACY_REPOSITORY, Image, parse_image
from tidemill.core.legacy_script import legacy_refusal
from tidemill.core.sdk_drivers import DRIVERS, MAIN, driver_refusal, remote_function_refusal
from tidemill.store.objects.store import ObjectStore

_OUTCOMES = ".tidemill"
_MAX_HYPERPARAMETERS = 100
_MAX_INPUTS = 20
_MAX_INSTANCES = 100
_MAX_RUNTIME_S = 28 * 24 * 3600
_OF_FIXED_PORTS = ("sagemaker_parameter_server_enabled", "sagemaker_multi_worker_mirrored_strategy_enabled")
_LEGACY_STEPS = frozenset({"training_steps", "evaluation_steps", "checkpoint_path"})
_MAX_SEARCHED_CODE_BYTES = 16 * 1024**2
_MAX_UNPACKED_BYTES = 64 * 1024**2
_MAX_SCRIPT_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class _Job:
    """A request, and what several checks need of it.

    Attributes:
        request: The members of CreateTrainingJob.
        capabilities: What the service can honor.
        has_bucket: Returns whether a bucket exists.
        algorithm: The AlgorithmSpecification.
        image: What its TrainingImage says.
        texts: The hyperparameters.
        values: The hyperparameters, decoded.
        instances: Number of instances of all groups.
    """

    request: Mapping[str, Any]
    capabilities: Capabilities
    has_bucket: Callable[[str], bool]
    algorithm: Mapping[str, Any]
    image: Image
    texts: Mapping[str, str]
    values: Mapping[str, Any]
    instances: int


async def admit(request: Mapping[str, Any], *, capabilities: Capabilities, objects: ObjectStore) -> None:
    """Refuse a request that cannot run as asked, or whose buckets do not exist, or whose script is of legacy mode.

    Args:
        request: The members of CreateTrainingJob.
        capabilities: What the service can honor.
        objects: Holds the buckets and the script.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
        ResourceLimitExceeded: The job could never start on this machine.
    """
    check = partial(_check, request, capabilities, objects.bucket_exists)
    # To compile the regular expressions of metrics can take seconds.
    has_metrics = request.get("AlgorithmSpecification", {}).get("MetricDefinitions")
    job = await asyncio.to_thread(check) if has_metrics else check()
    await _check_script(job, objects)
    await _check_driver(job, objects)


def check_training_request(request: Mapping[str, Any], *, capabilities: Capabilities | None = None) -> None:
    """Refuse a request that cannot run as asked, as `admit`, regardless of the existence of buckets and of its script.

    Args:
        request: The members of CreateTrainingJob.
        capabilities: What the service can honor. Default: everything.

    Raises:
        ValidationException: Names the member, the value and the allowed values.
        ResourceLimitExceeded: The job could never start on this machine.
    """
    _check(request, capabilities or Capabilities(), lambda bucket: True)


def _check(request: Mapping[str, Any], capabilities: Capabilities, has_bucket: Callable[[str], bool]) -> _Job:
    _check_presence(request)
    resources, texts = request["ResourceConfig"], request.get("HyperParameters", {})
    groups = resources.get("InstanceGroups")
    job = _Job(
        request,
        capabilities,
        has_bucket,
        algorithm=request["AlgorithmSpecification"],
        image=parse_image(request["AlgorithmSpecification"].get("TrainingImage", "")),
        texts=texts,
        values=decode(texts),
        instances=sum(each["InstanceCount"] for each in groups) if groups else resources.get("InstanceCount", 1),
    )
    given = request.keys() | job.algorithm.keys() | texts.keys()
    for check, members in _CHECKS:
        if not members or not members.isdisjoint(given):
            check(job)
    return job


def _check_presence(request: Mapping[str, Any]) -> None:
    """Require members that are optional in AWS's model, because other kinds of training jobs do not have them."""
    for member in ("AlgorithmSpecification", "ResourceConfig"):
        if member not in request:
            raise refusal(f"{member[0].lower()}{member[1:]}", None, f"a job that trains a script needs {member}")


def _check_instances(job: _Job) -> None:
    resources = job.request["ResourceConfig"]
    if resources.get("InstanceGroups"):
        _check_groups(resources)
    elif "InstanceType" not in resources:
        raise refusal(
            "resourceConfig.instanceType", None, "an instance type is required, e.g. 'local' or 'ml.m5.large'"
        )
    if not 1 <= job.instances <= _MAX_INSTANCES:
        raise refusal("resourceConfig.instanceCount", job.instances, f"between 1 and {_MAX_INSTANCES}")


def _check_network(job: _Job) -> None:
    """Refuse members that require a private network for the job, if the machine cannot provide one."""
    no_network, several = job.capabilities.no_network, job.instances > 1
    cut = bool(job.values.get("sagemaker_mpi_enabled")) and bool(job.texts.get("mp_parameters"))
    check_network(job.request, capabilities=job.capabilities, instances=job.instances, encrypts_itself=cut)
    if job.capabilities.clustered or not no_network:
        return
    # The tasks of these listen on the same port of every instance.
    for name in _OF_FIXED_PORTS if several else ():
        if job.values.get(name):
            why = (
                "each instance needs ports of its own, and the instances share this machine's network:"
                f" {no_network}; let the service run jobs in isolation mode full, or train on one instance"
            )
            raise refusal(f"hyperParameters.{name}", job.texts[name], why)


def _check_environment(job: _Job) -> None:
    check_environment(job.request["Environment"])


def _check_capacity(job: _Job) -> None:
    check_capacity(job.request, capabilities=job.capabilities, instances=job.instances)


def _check_groups(resources: Mapping[str, Any]) -> None:
    for member in ("InstanceType", "InstanceCount"):
        if member in resources:
            at = f"resourceConfig.{member[0].lower()}{member[1:]}"
            raise refusal(at, resources[member], "each of the InstanceGroups has its own; leave this one out")
    seen: set[str] = set()
    for index, group in enumerate(resources["InstanceGroups"]):
        at, name = f"resourceConfig.instanceGroups.{index + 1}.member", group["InstanceGroupName"]
        if name in seen:
            raise refusal(f"{at}.instanceGroupName", name, "names of groups are unique; rename one of them")
        seen.add(name)
        if group["InstanceCount"] < 1:
            raise refusal(f"{at}.instanceCount", group["InstanceCount"], "a group has at least one instance")


def _check_names_of_groups(job: _Job) -> None:
    """Refuse channels and distributions that name an instance group that the job does not have."""
    groups = [group["InstanceGroupName"] for group in job.request["ResourceConfig"].get("InstanceGroups", ())]
    name = "sagemaker_distribution_instance_groups"
    naming = [
        (f"inputDataConfig.{index + 1}.member.dataSource.s3DataSource.instanceGroupNames", names)
        for index, channel in enumerate(job.request.get("InputDataConfig", ()))
        if (names := channel["DataSource"].get("S3DataSource", {}).get("InstanceGroupNames"))
    ]
    for at, names in (*naming, (f"hyperParameters.{name}", job.values.get(name, []))):
        if not isinstance(names, list):
            raise refusal(at, names, "a list of names of groups in JSON")
        for each in names:
            if each not in groups:
                allowed = f"one of {', '.join(groups)}" if groups else "the job has no InstanceGroups"
                raise refusal(at, each, allowed)


def _check_legacy_mode(job: _Job) -> None:
    """Refuse a legacy-mode job: its module has no main program, so that it would do nothing if run as a script.

    The first SDK sends all of ``training_steps``, ``evaluation_steps``, ``checkpoint_path`` and
    ``sagemaker_requirements`` with such a job. One of the first three alone is an ordinary hyperparameter.
    """
    values = job.texts
    if "sagemaker_requirements" in values or values.keys() >= _LEGACY_STEPS:
        given = {name: values[name] for name in sorted((*_LEGACY_STEPS, "sagemaker_requirements")) if name in values}
        instead = "; ".join(f"instead of {name}, {form}" for name, form in LEGACY_MODE.items())
        raise refusal(
            "hyperParameters",
            given,
            f"they belong to legacy mode, which ended with TensorFlow 1.12. In script mode: {instead}"
            " (docs/how-to/leave-legacy-mode.md)",
        )
    if job.image.repository == LEGACY_REPOSITORY:
        raise refusal(
            "algorithmSpecification.trainingImage",
            job.algorithm["TrainingImage"],
            "it is the image of legacy mode, which ended with TensorFlow 1.12; make the module a script"
            " (docs/how-to/leave-legacy-mode.md), and use a tensorflow-training image",
        )


def _check_framework(job: _Job) -> None:
    try:
        framework = job.capabilities.frameworks.of_training(job.request).framework
    except ValueError as error:
        image = job.algorithm.get("TrainingImage")
        raise refusal("algorithmSpecification.trainingImage", image, str(error)) from error
    if job.values.get("sagemaker_mpi_enabled") and not framework.has_mpi:
        raise refusal(
            "hyperParameters.sagemaker_mpi_enabled",
            True,
            f"the environment of {framework.title} has no MPI; use an image of TensorFlow",
        )


def _check_python(job: _Job) -> None:
    """Refuse MPI for a script that runs on another Python than the environment, whose MPI it could not import."""
    try:
        selection = job.capabilities.frameworks.of_training(job.request)
    except ValueError:  # reported by the check of the framework
        return
    if job.values["sagemaker_mpi_enabled"] and selection.python in selection.framework.script_pythons:
        why = f"there is no MPI for Python {selection.python}; port the script, and ask for py3"
        raise refusal("hyperParameters.sagemaker_mpi_enabled", True, why)


def _check_channels(job: _Job) -> None:
    channels = job.request.get("InputDataConfig", ())
    if len(channels) > _MAX_INPUTS:
        raise refusal("inputDataConfig", f"{len(channels)} channels", f"at most {_MAX_INPUTS}")
    seen: dict[str, str] = {}
    modes: dict[str, str] = {}
    for index, channel in enumerate(channels):
        at = f"inputDataConfig.{index + 1}.member"
        name = channel["ChannelName"]
        if name in (".", ".."):
            raise refusal(
                f"{at}.channelName", name, "it would leave the directory of the channels; choose a plain name"
            )
        if name.upper() in seen:
            other = seen[name.upper()]
            why = "channel names are unique" if other == name else f"it shares SM_CHANNEL_{name.upper()} with {other!r}"
            raise refusal(f"{at}.channelName", name, f"{why}; rename one of them")
        seen[name.upper()] = name
        mode = channel.get("InputMode") or job.algorithm.get("TrainingInputMode", "File")
        modes[name] = mode
        _check_source(channel, at)
        _check_stream(channel, at, mode=mode)
    _check_names_of_pipes(modes)


def _check_names_of_pipes(modes: Mapping[str, str]) -> None:
    """Refuse channel names that collide with a FIFO or the outcome directory: all lie in the same directory."""
    for index, (name, mode) in enumerate(modes.items()):
        at = f"inputDataConfig.{index + 1}.member.channelName"
        stem, _, epoch = name.rpartition("_")
        if mode != "Pipe" and modes.get(stem) == "Pipe" and epoch.isdecimal():
            raise refusal(at, name, f"it is the name of a FIFO of the Pipe channel {stem!r}; rename one of them")
        if name == _OUTCOMES:
            raise refusal(at, name, "that is where the outcomes of Pipe channels lie; choose another name")


def _check_source(channel: Mapping[str, Any], at: str) -> None:
    source = channel.get("DataSource", {}).get("S3DataSource")
    if source is None:
        raise refusal(f"{at}.dataSource", sorted(channel.get("DataSource", {})), "an S3DataSource is required")
    check_s3_uri(source["S3Uri"], f"{at}.dataSource.s3DataSource.s3Uri")
    kind, names = source["S3DataType"], source.get("AttributeNames", ())
    at_source = f"{at}.dataSource.s3DataSource"
    if kind == "AugmentedManifestFile" and not names:
        raise refusal(f"{at_source}.attributeNames", list(names), "name the attributes that the channel streams")
    if kind != "AugmentedManifestFile" and names:
        raise refusal(f"{at_source}.attributeNames", list(names), "only an AugmentedManifestFile has attributes")


def _check_stream(channel: Mapping[str, Any], at: str, *, mode: str) -> None:
    """Refuse augmented manifests, decompression and record wrapping for a channel that does not use Pipe mode."""
    if mode == "Pipe":
        return
    if channel["DataSource"]["S3DataSource"]["S3DataType"] == "AugmentedManifestFile":
        raise refusal(
            f"{at}.dataSource.s3DataSource.s3DataType", "AugmentedManifestFile", "it is streamed in Pipe mode only"
        )
    if channel.get("CompressionType", "None") != "None":
        raise refusal(
            f"{at}.compressionType", channel["CompressionType"], "File mode hands files over as they are: None"
        )
    if channel.get("RecordWrapperType", "None") != "None":
        raise refusal(
            f"{at}.recordWrapperType", channel["RecordWrapperType"], "records are wrapped in Pipe mode only: None"
        )


def _check_stopping(job: _Job) -> None:
    condition = job.request.get("StoppingCondition", {})
    runtime_s = condition.get("MaxRuntimeInSeconds", 86400)
    if not 1 <= runtime_s <= _MAX_RUNTIME_S:
        raise refusal("stoppingCondition.maxRuntimeInSeconds", runtime_s, f"between 1 and {_MAX_RUNTIME_S} (28 days)")
    wait_s = condition.get("MaxWaitTimeInSeconds")
    if wait_s is not None and wait_s < runtime_s:
        raise refusal(
            "stoppingCondition.maxWaitTimeInSeconds", wait_s, f"at least MaxRuntimeInSeconds, which is {runtime_s}"
        )


def _check_hyperparameters(job: _Job) -> None:
    if len(job.texts) > _MAX_HYPERPARAMETERS:
        raise refusal("hyperParameters", f"{len(job.texts)} entries", f"at most {_MAX_HYPERPARAMETERS}")
    for name, value in job.texts.items():
        if "\0" in name or "\0" in value:
            raise refusal(f"hyperParameters.{name!r}", value, "a NUL character cannot be passed as an argument")
        reason = hyperparameter_refusal(name, value) if name in REFUSED_HYPERPARAMETERS else None
        if reason is not None:
            raise refusal(f"hyperParameters.{name}", value, reason)


def _check_metrics(job: _Job) -> None:
    for index, definition in enumerate(job.algorithm.get("MetricDefinitions", ()), start=1):
        try:
            re.compile(definition["Regex"])
        except (re.error, OverflowError, RecursionError) as error:
            raise refusal(
                f"algorithmSpecification.metricDefinitions.{index}.member.regex",
                definition["Regex"],
                f"it is not a regular expression of Python ({error})",
            ) from error


def _check_synced(job: _Job) -> None:
    try:
        directories = synced_directories(job.request)
    except ValueError as error:
        member, value, reason = error.args
        raise refusal(member, value, reason) from error
    if not job.capabilities.mounts and any(each.mounted_at for each in directories):
        raise refusal(
            "checkpointConfig.localPath",
            job.request["CheckpointConfig"]["LocalPath"],
            "in isolation mode plain nothing is mounted for a job: choose a directory below /opt/ml, or run the service"
            " in isolation mode mount or full",
        )
    for member, text in synced_uris(job.request):
        check_target(text, member, has_bucket=job.has_bucket)


def _check_remote_function(job: _Job) -> None:
    arguments = job.algorithm.get("ContainerArguments", ())
    reason = remote_function_refusal((*job.algorithm.get("ContainerEntrypoint", ()), *arguments))
    if reason is not None:
        raise refusal("algorithmSpecification.containerArguments", list(arguments), reason)


def _check_target(job: _Job) -> None:
    uri = job.request["OutputDataConfig"]["S3OutputPath"]
    check_target(uri, "outputDataConfig.s3OutputPath", has_bucket=job.has_bucket)


_ALWAYS: frozenset[str] = frozenset()
_CHECKS: tuple[tuple[Callable[[_Job], None], frozenset[str]], ...] = (
    (_check_instances, _ALWAYS),
    (_check_names_of_groups, _ALWAYS),
    (_check_legacy_mode, _ALWAYS),
    (_check_python, frozenset(("sagemaker_mpi_enabled",))),
    (_check_framework, _ALWAYS),
    (_check_channels, _ALWAYS),
    (_check_stopping, frozenset(("StoppingCondition",))),
    (_check_hyperparameters, frozenset(("HyperParameters",))),
    (_check_environment, frozenset(("Environment",))),
    (_check_metrics, frozenset(("MetricDefinitions",))),
    (_check_synced, frozenset(("CheckpointConfig", "TensorBoardOutputConfig", "sagemaker_s3_output"))),
    (
        _check_network,
        frozenset(("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", *_OF_FIXED_PORTS)),
    ),
    (_check_capacity, _ALWAYS),
    (_check_target, _ALWAYS),
    (_check_remote_function, frozenset(("ContainerEntrypoint", "ContainerArguments"))),
)
"""All checks but those of the script and of drivers, each with the members and hyperparameters that it concerns. The
first failure is reported."""


async def _check_script(job: _Job, objects: ObjectStore) -> None:
    """Refuse a script of legacy mode, if the image does not name a Python, by which script mode is asked for."""
    program, uri = job.values.get("sagemaker_program"), job.values.get("sagemaker_submit_directory")
    if not program or not str(uri).startswith("s3://") or job.image.py_version is not None:
        return
    place = check_s3_uri(str(uri), "hyperParameters.sagemaker_submit_directory")
    info = objects.head(place.bucket, place.key)
    if info is None or info.size_bytes > _MAX_SEARCHED_CODE_BYTES:
        return  # the planner refuses missing code
    archive = await objects.read_bytes(info)
    source = await asyncio.to_thread(_member_text, archive, str(program))
    reason = None if source is None else legacy_refusal(str(program), source)
    if reason is not None:
        raise refusal("hyperParameters.sagemaker_program", program, reason)


async def _check_driver(job: _Job, objects: ObjectStore) -> None:
    """Refuse a driver of SDK v3's ModelTrainer that cannot run."""
    for index, channel in enumerate(job.request.get("InputDataConfig", ()), 1):
        if channel["ChannelName"] != DRIVERS:
            continue
        at = f"inputDataConfig.{index}.member.dataSource.s3DataSource.s3Uri"
        uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
        place = check_s3_uri(uri, at)
        info = objects.head(place.bucket, f"{place.key.rstrip('/')}/{MAIN}")
        if info is None or info.size_bytes > _MAX_SCRIPT_BYTES:
            continue  # it is in another S3, or no driver of the SDK
        reason = driver_refusal((await objects.read_bytes(info)).decode(errors="replace"))
        if reason is not None:
            raise refusal(at, uri, reason)


def _member_text(archive: bytes, name: str) -> str | None:
    """Return the text of a file of a ``tar.gz``; None if it is not there or too long for a script."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r|gz") as tar:
            return _text_in(tar, name)
    except (tarfile.TarError, OSError, EOFError, zlib.error):
        return None  # the job reports it


def _text_in(tar: tarfile.TarFile, name: str) -> str | None:
    for member in tar:
        if member.isfile() and member.name.removeprefix("./") == name and member.size <= _MAX_SCRIPT_BYTES:
            file = tar.extractfile(member)
            return file.read().decode(errors="replace") if file is not None else None
        if tar.offset + member.size > _MAX_UNPACKED_BYTES:
            return None
    return None
