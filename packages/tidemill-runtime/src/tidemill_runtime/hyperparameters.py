"""Hyperparameters: converts the platform's map of strings to values, and values to the script's arguments.

The formats are those of SageMaker's training toolkit 5.1.4: values that parse as JSON are JSON, and arguments are the
Python text of the value. Arguments are passed as an argument vector, never through a shell.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill_runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

TUNING_METRIC = "_tuning_objective_metric"

RESERVED = frozenset(
    {
        TUNING_METRIC,
        "default_user_module_name",
        "sagemaker_container_log_level",
        "sagemaker_enable_cloudwatch_metrics",
        "sagemaker_job_name",
        "sagemaker_program",
        "sagemaker_region",
        "sagemaker_s3_output",
        "sagemaker_submit_directory",
    }
)
"""Hyperparameters that configure the toolkit."""


@dataclass(frozen=True)
class Hyperparameters:
    """The decoded hyperparameters of a job.

    Attributes:
        reserved: Hyperparameters that configure the runtime; their names are in ``RESERVED``.
        framework: All other hyperparameters that begin with ``sagemaker_``, such as distribution and compiler.
    """

    user: Mapping[str, Any]
    reserved: Mapping[str, Any]
    framework: Mapping[str, Any]


def decode(raw: Mapping[str, Any], *, training_job: str | None = None) -> Hyperparameters:
    """Decode the content of hyperparameters.json, and separate the script's from the platform's.

    Args:
        raw: Name to string. SDK v1 and v2 send JSON in the strings, v3 sends plain text; both are accepted.
        training_job: Name of the training job, for its own model_dir in a tuning job. Default: ``sagemaker_job_name``,
            which SDKs set to the name of the tuning job.
    """
    values = {name: _decode_value(value) for name, value in raw.items()}
    split_off = {name: value for name, value in values.items() if name.startswith("sagemaker_") or name in RESERVED}
    reserved = {name: value for name, value in split_off.items() if name in RESERVED}
    user = {name: value for name, value in values.items() if name not in split_off}
    trial = training_job or reserved.get("sagemaker_job_name")
    if TUNING_METRIC in reserved and trial:
        user = _separate_trials(user, job_name=str(trial))
    framework = {name: value for name, value in split_off.items() if name not in RESERVED}
    return Hyperparameters(user=user, reserved=reserved, framework=framework)


def as_arguments(user: Mapping[str, Any]) -> tuple[str, ...]:
    """Encode the user's hyperparameters as command line arguments.

    Returns:
        ``--name value`` pairs sorted by name, ``-n value`` for names of one letter. None becomes an empty argument.

    Raises:
        ConfigurationError: A name or value contains a character that an argument cannot contain.
    """
    arguments: list[str] = []
    for name in sorted(user):
        flag = ("-" if len(name) == 1 else "--") + name
        value = _encode_value(user[name])
        for part in (flag, value):
            _check_passable(part, name=name)
        arguments += [flag, value]
    return tuple(arguments)


def _decode_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _separate_trials(user: Mapping[str, Any], *, job_name: str) -> dict[str, Any]:
    """Append the job's name to model_dir in a tuning job, so that trials do not overwrite each other's files."""
    model_dir = user.get("model_dir")
    if not isinstance(model_dir, str) or model_dir.startswith("/opt/ml"):
        return dict(user)
    return {**user, "model_dir": f"{model_dir.rstrip('/')}/{job_name}/model"}


def _encode_value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ",".join(f"{key}={value[key]}" for key in sorted(value))
    return str(value)


def _check_passable(text: str, *, name: str) -> None:
    if "\0" in text:
        raise ConfigurationError(
            f"hyperparameter {name!r} holds a NUL character, which no command line argument can carry: remove it"
        )
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"hyperparameter {name!r} holds half a surrogate pair ({text[error.start]!r}), which is not a character: "
            "send the whole character"
        ) from error
