"""What a CreateTrainingJob request must satisfy beyond AWS's model and the table of refused members.

The rule behind every check: nothing that was asked for is silently left out. A member that is refused whatever its
neighbours say has a row in `tidemill.core.compatibility`, and never gets here. Here are the conditions on several
members at once, and on texts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.core.compatibility import LEGACY_MODE, hyperparameter_refusal
from tidemill.core.images import is_of_legacy_mode
from tidemill.core.names import S3Uri
from tidemill.errors import ValidationException

__all__ = ["check_training_request"]

_RESERVED_VARIABLES = re.compile(r"(SM_|SAGEMAKER_BASE_DIR$|TIDEMILL_|AWS_ACCESS_KEY|AWS_SECRET|AWS_SESSION_TOKEN)")
_OUTCOMES = ".tidemill"
_MAX_HYPERPARAMETERS = 100
_MAX_ENVIRONMENT = 100
_MAX_INPUTS = 20
_MAX_RUNTIME_S = 28 * 24 * 3600
_LEGACY_STEPS = frozenset({"training_steps", "evaluation_steps", "checkpoint_path"})


def check_training_request(request: Mapping[str, Any]) -> None:
    """Refuse what cannot be run as asked.

    Raises:
        ValidationException: Names the member, the value and what is allowed.
    """
    _check_presence(request)
    _check_legacy_mode(request)
    _check_channels(request.get("InputDataConfig", ()), request["AlgorithmSpecification"])
    check_s3_uri(request["OutputDataConfig"]["S3OutputPath"], "outputDataConfig.s3OutputPath")
    _check_stopping(request)
    _check_hyperparameters(request.get("HyperParameters", {}))
    _check_environment(request.get("Environment", {}))
    _check_metrics(request["AlgorithmSpecification"].get("MetricDefinitions", ()))


def _refuse(member: str, value: object, allowed: str) -> ValidationException:
    shown = repr(value) if len(repr(value)) <= 200 else repr(value)[:200] + "..."
    return ValidationException(f"Value {shown} at '{member}' is not allowed: {allowed}")


def _check_presence(request: Mapping[str, Any]) -> None:
    """Members that AWS's model does not require, because jobs of other kinds do without them."""
    for member in ("AlgorithmSpecification", "ResourceConfig"):
        if member not in request:
            raise _refuse(f"{member[0].lower()}{member[1:]}", None, f"a job that trains a script needs {member}")
    if "InstanceType" not in request["ResourceConfig"]:
        raise _refuse(
            "resourceConfig.instanceType", None, "an instance type is required, e.g. 'local' or 'ml.m5.large'"
        )


def _check_legacy_mode(request: Mapping[str, Any]) -> None:
    """Refuse a job of legacy mode, whose script has no main program: run as a script it would do nothing.

    The first SDK sends all of ``training_steps``, ``evaluation_steps``, ``checkpoint_path`` and
    ``sagemaker_requirements`` with such a job. One of the first three alone is an ordinary hyperparameter.
    """
    values = request.get("HyperParameters", {})
    if "sagemaker_requirements" in values or values.keys() >= _LEGACY_STEPS:
        given = {name: values[name] for name in sorted((*_LEGACY_STEPS, "sagemaker_requirements")) if name in values}
        instead = "; ".join(f"instead of {name}, {form}" for name, form in LEGACY_MODE.items())
        raise _refuse(
            "hyperParameters",
            given,
            f"they belong to legacy mode, which ended with TensorFlow 1.12. In script mode: {instead}",
        )
    image = request["AlgorithmSpecification"].get("TrainingImage", "")
    if is_of_legacy_mode(image):
        raise _refuse(
            "algorithmSpecification.trainingImage",
            image,
            "it is the image of legacy mode, which ended with TensorFlow 1.12; make the module a script, and use a"
            " tensorflow-training image",
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
        reason = hyperparameter_refusal(name, value)
        if reason is not None:
            raise _refuse(f"hyperParameters.{name}", value, reason)


def _check_environment(values: Mapping[str, str]) -> None:
    if len(values) > _MAX_ENVIRONMENT:
        raise _refuse("environment", f"{len(values)} entries", f"at most {_MAX_ENVIRONMENT}")
    for name, value in values.items():
        if _RESERVED_VARIABLES.match(name):
            raise _refuse(f"environment.{name}", value, "SM_*, TIDEMILL_* and AWS credentials are set by the service")
        if "\0" in value:
            raise _refuse(f"environment.{name}", value, "a NUL character cannot stand in an environment variable")


def _check_metrics(definitions: Sequence[Mapping[str, str]]) -> None:
    for index, definition in enumerate(definitions, start=1):
        try:
            re.compile(definition["Regex"])
        except (re.error, OverflowError, RecursionError) as error:
            raise _refuse(
                f"algorithmSpecification.metricDefinitions.{index}.member.regex",
                definition["Regex"],
                f"it is not a regular expression of Python ({error})",
            ) from error
