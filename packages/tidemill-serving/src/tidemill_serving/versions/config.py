"""The models and versions to serve, from a ModelServerConfig."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidemill_serving.errors import RequestError, StartFailed, invalid
from tidemill_serving.messages.definitions import messages
from tidemill_serving.messages.text_files import parse_text_file
from tidemill_serving.versions.source import open_source

_PLATFORM = "tensorflow"
_OTHER_TYPE = 2
_UNNAMED = "requests"  # beginning of the names of files for which only a directory is given
LOG_TYPE = "tfrecord"
"""The type of ``log_collector_config`` that is supported; TensorFlow Serving itself defines none."""


@dataclass(frozen=True, slots=True)
class VersionPolicy:
    """Selects the versions to serve: the listed ones, or the ``latest`` highest, or all.

    Attributes:
        latest: Number of the highest versions to serve; 0 means all.
        specific: Version numbers to serve; None means that ``latest`` applies.
    """

    latest: int = 1
    specific: frozenset[int] | None = None

    def choose(self, found: Iterable[int]) -> list[int]:
        """Return the versions to serve, highest first.

        Args:
            found: Numbers of the version directories.
        """
        numbers = sorted(found, reverse=True)
        if self.specific is not None:
            return [number for number in numbers if number in self.specific]
        return numbers[: self.latest] if self.latest else numbers


@dataclass(frozen=True, slots=True)
class LogTarget:
    """Where requests of a model are recorded, and how many.

    Attributes:
        prefix: Beginning of the paths of the files.
        rate: Part of the requests that is recorded, 0 to 1.
    """

    prefix: Path
    rate: float


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model.

    Attributes:
        name: Its name in requests.
        base_path: Directory of its versions, or a URI: see `open_source`.
        policy: Selects the versions to serve.
        labels: Version numbers by label.
        logs: Where its requests are recorded.
    """

    name: str
    base_path: str
    policy: VersionPolicy = field(default_factory=VersionPolicy)
    labels: Mapping[str, int] = field(default_factory=dict)
    logs: tuple[LogTarget, ...] = ()


def read_config_file(path: Path) -> tuple[ModelConfig, ...]:
    """Read a ModelServerConfig in text form.

    Raises:
        StartFailed: The file cannot be read, or is not a ModelServerConfig.
    """
    try:
        return read_configs(read_text_message(path, "ModelServerConfig"))
    except RequestError as error:
        raise StartFailed(f"{path}: {error.message}") from error


def read_text_message(path: Path, name: str) -> Any:
    """Read a file with a message of TF Serving in protobuf's text form.

    Args:
        name: Type of the message, one of `messages`.

    Raises:
        StartFailed: The file cannot be read, or does not contain such a message.
    """
    return parse_text_file(path, getattr(messages(), name)())


def read_configs(config: Any) -> tuple[ModelConfig, ...]:
    """Read the models of a ModelServerConfig message.

    Raises:
        RequestError: INVALID_ARGUMENT, the configuration of a model is not supported.
    """
    if config.WhichOneof("config") != "model_config_list":
        raise invalid("Expected a ModelServerConfig with model_config_list: a list of the models to serve")
    configs = tuple(map(_model_config, config.model_config_list.config))
    names = [each.name for each in configs]
    for name in names:
        if names.count(name) > 1:
            raise invalid(f"Illegal to list model {name} multiple times in config list")
    return configs


def _model_config(given: Any) -> ModelConfig:
    name = given.name
    if not name or "/" in name or ":" in name:
        raise invalid(f"a model has the name {name!r}; expected one without / and :, which separate names in URLs")
    if given.model_platform not in ("", _PLATFORM) or given.model_type == _OTHER_TYPE:
        raise invalid(f"model {name}: model_platform {given.model_platform!r} cannot be served, only {_PLATFORM!r}")
    open_source(given.base_path, name=name)
    for label, version in given.version_labels.items():
        if not label or version < 0:
            raise invalid(f"model {name}: version_labels has {label!r}: {version}; expected a name and a version")
    logged = [*([given.logging_config] if given.HasField("logging_config") else []), *given.logging_configs]
    logs = tuple(_log_target(each, name) for each in logged)
    return ModelConfig(name, given.base_path, _policy(given), dict(given.version_labels), logs)


def _log_target(given: Any, name: str) -> LogTarget:
    collector, rate = given.log_collector_config, given.sampling_config.sampling_rate
    if collector.type != LOG_TYPE:
        raise invalid(
            f"model {name}: log_collector_config has the type {collector.type!r}; requests can be recorded as"
            f" {LOG_TYPE!r} only: files of TFRecords with PredictionLog"
        )
    prefix = Path(collector.filename_prefix)
    if not prefix.is_absolute() or "\0" in collector.filename_prefix:
        raise invalid(
            f"model {name}: filename_prefix {collector.filename_prefix!r} is no absolute path of this machine, such as"
            " '/var/log/serving/requests'"
        )
    if not 0 <= rate <= 1:
        raise invalid(f"model {name}: sampling_rate {rate} is not between 0, for no request, and 1, for all")
    return LogTarget(prefix / _UNNAMED if collector.filename_prefix.endswith("/") else prefix, rate)


def _policy(given: Any) -> VersionPolicy:
    policy = given.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "all":
        return VersionPolicy(latest=0)
    if choice == "specific":
        versions = frozenset(policy.specific.versions)
        if not versions:
            raise invalid(f"model {given.name}: model_version_policy.specific lists no versions")
        return VersionPolicy(specific=versions)
    return VersionPolicy(latest=policy.latest.num_versions or 1)
