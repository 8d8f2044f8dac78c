"""What a CreateTrainingJob request must satisfy beyond the shape that AWS's model gives it.

The rule behind every check: nothing that was asked for is silently left out. What tidemill cannot honour is refused
here, with the member, the value received and what to do.
"""

import re
from collections.abc import Mapping
from typing import Any

from tidemill.core.names import S3Uri
from tidemill.errors import ValidationException

__all__ = ["check_training_request"]

_RESERVED_VARIABLES = re.compile(r"(SM_|SAGEMAKER_BASE_DIR$|TIDEMILL_|AWS_ACCESS_KEY|AWS_SECRET|AWS_SESSION_TOKEN)")
_DATA_TYPES = ("S3Prefix", "ManifestFile", "AugmentedManifestFile")
_OUTCOMES = ".tidemill"
_MAX_HYPERPARAMETERS = 100
_MAX_ENVIRONMENT = 100
_MAX_INPUTS = 20
_MAX_RUNTIME_S = 28 * 24 * 3600


def check_training_request(request: Mapping[str, Any]) -> None:
    """Refuse what cannot be run as asked.

    Raises:
        ValidationException: Names the member, the value and what is allowed.
    """
    _check_instances(request["ResourceConfig"])
    _check_channels(request.get("InputDataConfig", ()), request["AlgorithmSpecification"])
    _check_output(request["OutputDataConfig"])
    _check_stopping(request)
    _check_hyperparameters(request.get("HyperParameters", {}))
    _check_environment(request.get("Environment", {}))
    _check_not_yet(request)


def _refuse(member: str, value: object, allowed: str) -> ValidationException:
    shown = repr(value) if len(repr(value)) <= 200 else repr(value)[:200] + "..."
    return ValidationException(f"Value {shown} at '{member}' is not allowed: {allowed}")


def _check_instances(resources: Mapping[str, Any]) -> None:
    if resources.get("InstanceGroups"):
        raise _refuse(
            "resourceConfig.instanceGroups", len(resources["InstanceGroups"]), "give InstanceType and InstanceCount"
        )
    if "InstanceType" not in resources:
        raise _refuse(
            "resourceConfig.instanceType", None, "an instance type is required, e.g. 'local' or 'ml.m5.large'"
        )
    count = resources.get("InstanceCount", 1)
    if count != 1:
        raise _refuse("resourceConfig.instanceCount", count, "this version runs jobs of one instance")
    if resources.get("VolumeKmsKeyId"):
        raise _refuse(
            "resourceConfig.volumeKmsKeyId", resources["VolumeKmsKeyId"], "there is no key ring to encrypt with"
        )


def _check_channels(channels: Any, algorithm: Mapping[str, Any]) -> None:
    if len(channels) > _MAX_INPUTS:
        raise _refuse("inputDataConfig", f"{len(channels)} channels", f"at most {_MAX_INPUTS}")
    seen: dict[str, str] = {}
    modes: dict[str, str] = {}
    for index, channel in enumerate(channels):
        at = f"inputDataConfig.{index + 1}.member"
        name = channel["ChannelName"]
        if name in (".", ".."):
            raise _refuse(
                f"{at}.channelName", name, "it would leave the directory of the channels; choose a plain name"
            )
        if name.upper() in seen:
            other = seen[name.upper()]
            why = "channel names are unique" if other == name else f"it shares SM_CHANNEL_{name.upper()} with {other!r}"
            raise _refuse(f"{at}.channelName", name, f"{why}; rename one of them")
        seen[name.upper()] = name
        mode = channel.get("InputMode") or algorithm.get("TrainingInputMode", "File")
        if mode not in ("File", "Pipe"):
            raise _refuse(f"{at}.inputMode", mode, "this version offers File and Pipe")
        modes[name] = mode
        _check_source(channel, at)
        _check_stream(channel, at, mode=mode)
    _check_names_of_pipes(modes)


def _check_names_of_pipes(modes: Mapping[str, str]) -> None:
    """FIFOs, outcome files and the directories of channels share one directory."""
    for index, (name, mode) in enumerate(modes.items()):
        at = f"inputDataConfig.{index + 1}.member.channelName"
        stem, _, epoch = name.rpartition("_")
        if mode == "File" and modes.get(stem) == "Pipe" and epoch.isdecimal():
            raise _refuse(at, name, f"it is the name of a FIFO of the Pipe channel {stem!r}; rename one of them")
        if name == _OUTCOMES:
            raise _refuse(at, name, "that is where the outcomes of Pipe channels lie; choose another name")


def _check_source(channel: Mapping[str, Any], at: str) -> None:
    source = channel.get("DataSource", {}).get("S3DataSource")
    if source is None:
        raise _refuse(f"{at}.dataSource", sorted(channel.get("DataSource", {})), "an S3DataSource is required")
    check_s3_uri(source["S3Uri"], f"{at}.dataSource.s3DataSource.s3Uri")
    kind, names = source["S3DataType"], source.get("AttributeNames", ())
    at_source = f"{at}.dataSource.s3DataSource"
    if kind not in _DATA_TYPES:
        raise _refuse(f"{at_source}.s3DataType", kind, f"this version offers {', '.join(_DATA_TYPES)}")
    if kind == "AugmentedManifestFile" and not names:
        raise _refuse(f"{at_source}.attributeNames", list(names), "name the attributes that the channel streams")
    if kind != "AugmentedManifestFile" and names:
        raise _refuse(f"{at_source}.attributeNames", list(names), "only an AugmentedManifestFile has attributes")


def _check_stream(channel: Mapping[str, Any], at: str, *, mode: str) -> None:
    """What is done to data on its way, which Pipe mode alone can do."""
    if mode == "Pipe":
        return
    if channel["DataSource"]["S3DataSource"]["S3DataType"] == "AugmentedManifestFile":
        raise _refuse(
            f"{at}.dataSource.s3DataSource.s3DataType", "AugmentedManifestFile", "it is streamed in Pipe mode only"
        )
    if channel.get("CompressionType", "None") != "None":
        raise _refuse(
            f"{at}.compressionType", channel["CompressionType"], "File mode hands files over as they are: None"
        )
    if channel.get("RecordWrapperType", "None") != "None":
        raise _refuse(
            f"{at}.recordWrapperType", channel["RecordWrapperType"], "records are wrapped in Pipe mode only: None"
        )


def check_s3_uri(uri: str, member: str) -> S3Uri:
    """The parsed URI.

    Raises:
        ValidationException: It is not a well-formed S3 URI; names ``member``.
    """
    try:
        return S3Uri.parse(uri)
    except ValueError as error:
        raise _refuse(member, uri, str(error)) from error


def _check_output(output: Mapping[str, Any]) -> None:
    check_s3_uri(output["S3OutputPath"], "outputDataConfig.s3OutputPath")
    if output.get("KmsKeyId"):
        raise _refuse(
            "outputDataConfig.kmsKeyId",
            output["KmsKeyId"],
            "there is no key ring to encrypt with; leave the member out",
        )
    if output.get("CompressionType", "GZIP") != "GZIP":
        raise _refuse("outputDataConfig.compressionType", output["CompressionType"], "this version offers GZIP")


def _check_stopping(request: Mapping[str, Any]) -> None:
    condition = request.get("StoppingCondition", {})
    runtime_s = condition.get("MaxRuntimeInSeconds", 86400)
    if not 1 <= runtime_s <= _MAX_RUNTIME_S:
        raise _refuse("stoppingCondition.maxRuntimeInSeconds", runtime_s, f"between 1 and {_MAX_RUNTIME_S} (28 days)")
    wait_s = condition.get("MaxWaitTimeInSeconds")
    if wait_s is not None and wait_s < runtime_s:
        raise _refuse(
            "stoppingCondition.maxWaitTimeInSeconds", wait_s, f"at least MaxRuntimeInSeconds, which is {runtime_s}"
        )


def _check_hyperparameters(values: Mapping[str, str]) -> None:
    if len(values) > _MAX_HYPERPARAMETERS:
        raise _refuse("hyperParameters", f"{len(values)} entries", f"at most {_MAX_HYPERPARAMETERS}")
    for name, value in values.items():
        if "\0" in name or "\0" in value:
            raise _refuse(f"hyperParameters.{name!r}", value, "a NUL character cannot be passed as an argument")


def _check_environment(values: Mapping[str, str]) -> None:
    if len(values) > _MAX_ENVIRONMENT:
        raise _refuse("environment", f"{len(values)} entries", f"at most {_MAX_ENVIRONMENT}")
    for name, value in values.items():
        if _RESERVED_VARIABLES.match(name):
            raise _refuse(f"environment.{name}", value, "SM_*, TIDEMILL_* and AWS credentials are set by the service")
        if "\0" in value:
            raise _refuse(f"environment.{name}", value, "a NUL character cannot stand in an environment variable")


def _check_not_yet(request: Mapping[str, Any]) -> None:
    """Members whose effect this version does not have."""
    if request.get("EnableNetworkIsolation"):
        raise _refuse(
            "enableNetworkIsolation", True, "no isolation mode of this version closes the network; leave it out"
        )
    if request.get("EnableInterContainerTrafficEncryption"):
        raise _refuse("enableInterContainerTrafficEncryption", True, "there is one instance and no traffic to encrypt")
    if "CheckpointConfig" in request:
        raise _refuse(
            "checkpointConfig", dict(request["CheckpointConfig"]), "this version does not sync checkpoints to S3"
        )
    if "RetryStrategy" in request:
        raise _refuse("retryStrategy", dict(request["RetryStrategy"]), "this version does not restart jobs")
    if "AlgorithmName" in request["AlgorithmSpecification"]:
        raise _refuse(
            "algorithmSpecification.algorithmName",
            request["AlgorithmSpecification"]["AlgorithmName"],
            "give TrainingImage",
        )
