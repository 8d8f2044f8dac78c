"""`Environment`: the properties of a training job, under the names of SageMaker's training toolkit 5.1.4."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SAGEMAKER_BASE_PATH = "/opt/ml"
base_dir = os.environ.get("SAGEMAKER_BASE_DIR", SAGEMAKER_BASE_PATH)
code_dir = f"{base_dir}/code"
input_dir = f"{base_dir}/input"
input_config_dir = f"{input_dir}/config"
input_data_dir = f"{input_dir}/data"
model_dir = f"{base_dir}/model"
output_dir = f"{base_dir}/output"
output_data_dir = f"{output_dir}/data"


class Environment:
    """The properties of this training job, as attributes and as a mapping.

    The attributes are the members of the variable ``SM_TRAINING_ENV``, e.g. ``hosts``, ``current_host``,
    ``channel_input_dirs``, ``hyperparameters``, ``num_gpus``, ``model_dir`` and ``output_data_dir``.

    Args:
        resource_config: Replaces the attribute of that name. Default: that of the job.
        input_data_config: Likewise.
        hyperparameters: Likewise.

    Raises:
        RuntimeError: This process is not the script of a training job.
    """

    def __init__(
        self,
        resource_config: dict[str, Any] | None = None,
        input_data_config: dict[str, Any] | None = None,
        hyperparameters: dict[str, Any] | None = None,
    ) -> None:
        text = os.environ.get("SM_TRAINING_ENV")
        if not text:
            raise RuntimeError("SM_TRAINING_ENV is not set: only the script of a training job has an Environment")
        self._values: dict[str, Any] = json.loads(text)
        given = {
            "resource_config": resource_config,
            "input_data_config": input_data_config,
            "hyperparameters": hyperparameters,
        }
        self._values.update({name: value for name, value in given.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also before the values are there, as while it is unpickled
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(sorted(self._values))
            raise AttributeError(f"a training environment has no {name!r}; it has {known}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def keys(self) -> list[str]:
        """Return the names of all properties, so that ``dict(environment)`` works."""
        return list(self._values)

    def properties(self) -> list[str]:
        """Return the names of all properties."""
        return list(self._values)

    def sagemaker_s3_output(self) -> str | None:
        """Return the job's output path in S3; None if the job has none."""
        return _read("hyperparameters.json").get("sagemaker_s3_output")

    def to_cmd_args(self) -> list[str]:
        """Return the hyperparameters as the arguments that the script got."""
        return json.loads(os.environ["SM_USER_ARGS"])

    def to_env_vars(self) -> dict[str, str]:
        """Return the ``SM_*`` variables of the job."""
        return {name: value for name, value in os.environ.items() if name.startswith("SM_")}


def read_hyperparameters() -> dict[str, Any]:
    """Return the script's hyperparameters."""
    return dict(Environment().hyperparameters)


def read_resource_config() -> dict[str, Any]:
    """Return the content of resourceconfig.json."""
    return _read("resourceconfig.json")


def read_input_data_config() -> dict[str, Any]:
    """Return the content of inputdataconfig.json."""
    return _read("inputdataconfig.json")


def channel_path(channel: str) -> str:
    """Return the directory of a channel.

    Args:
        channel: Name of the channel.
    """
    return f"{input_data_dir}/{channel}"


def num_cpus() -> int:
    """Return the number of CPUs of the instance."""
    return int(Environment().num_cpus)


def num_gpus() -> int:
    """Return the number of GPUs of the instance."""
    return int(Environment().num_gpus)


def _read(name: str) -> dict[str, Any]:
    return json.loads(Path(input_config_dir, name).read_bytes())
