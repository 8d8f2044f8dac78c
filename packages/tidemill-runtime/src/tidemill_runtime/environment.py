"""The training environment: the content of the configuration files and container variables of this job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemill_runtime.devices import Devices
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.hyperparameters import Hyperparameters, as_arguments, decode
from tidemill_runtime.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DEFAULT_FRAMEWORK_MODULE = "sagemaker_tensorflow_container.training:main"
DEFAULT_LOG_LEVEL = 20
ONLY_GROUP = "homogeneousCluster"
"""Name of the group in a cluster without instance groups."""

DISTRIBUTION_FLAGS = (
    "sagemaker_mpi_enabled",
    "sagemaker_parameter_server_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
    "sagemaker_pytorch_ddp_enabled",
    "sagemaker_pytorch_xla_multi_worker_enabled",
    "sagemaker_torch_distributed_enabled",
)


@dataclass(frozen=True)
class Environment:
    """One instance's view of its job. ``tidemill_runtime.variables`` turns it into SM_* variables.

    Attributes:
        layout: Paths.
        hyperparameters: Decoded hyperparameters, separated into those of the script and those of the platform.
        resource_config: Content of resourceconfig.json.
        input_data_config: Content of inputdataconfig.json.
        entry_point: File name of the script as given; empty for a job with its own container entry point.
        job_name: Training job name; None if not given.
        region: AWS region of the job; None if not given.
        framework_module: Value of SM_FRAMEWORK_MODULE.
        devices: Processors of the instance.
    """

    layout: Layout
    hyperparameters: Hyperparameters
    resource_config: Mapping[str, Any]
    input_data_config: Mapping[str, Any]
    entry_point: str
    job_name: str | None
    region: str | None
    framework_module: str
    devices: Devices

    @classmethod
    def read(cls, variables: Mapping[str, str], *, devices: Devices | None = None) -> Environment:
        """Read configuration files and container variables.

        Args:
            devices: Processors of the instance. Default: counted.

        Raises:
            ConfigurationError: A file is not a JSON object, or there is no /opt/ml.
        """
        layout = Layout.of(variables)
        hyperparameters = decode(
            _read_object(layout.config / "hyperparameters.json"), training_job=variables.get("TRAINING_JOB_NAME")
        )
        reserved = hyperparameters.reserved
        program = variables.get("SAGEMAKER_PROGRAM") or reserved.get("sagemaker_program")
        return cls(
            layout=layout,
            hyperparameters=hyperparameters,
            resource_config=_read_object(layout.config / "resourceconfig.json"),
            input_data_config=_read_object(layout.config / "inputdataconfig.json"),
            entry_point=str(program or reserved.get("default_user_module_name") or ""),
            # Text that is JSON has been decoded: a job may be named 2024.
            job_name=_text(reserved.get("sagemaker_job_name")) or variables.get("TRAINING_JOB_NAME"),
            region=_text(reserved.get("sagemaker_region")) or variables.get("AWS_REGION"),
            framework_module=variables.get("SAGEMAKER_TRAINING_MODULE") or DEFAULT_FRAMEWORK_MODULE,
            devices=devices or Devices.present(variables),
        )

    @property
    def current_host(self) -> str:
        """Name of this instance."""
        return str(self.resource_config.get("current_host") or "algo-1")

    @property
    def hosts(self) -> list[str]:
        """Names of all instances."""
        return list(self.resource_config.get("hosts") or [self.current_host])

    @property
    def network_interface_name(self) -> str:
        """Network interface for distributed training."""
        return str(self.resource_config.get("network_interface_name") or "eth0")

    @property
    def current_instance_type(self) -> str:
        """Instance type; ``local`` if not given."""
        return str(self.resource_config.get("current_instance_type") or "local")

    @property
    def current_instance_group(self) -> str | None:
        """Group of this instance; None without a resourceconfig.json.

        The key has two names, because SageMaker's platform and its toolkit disagree.
        """
        config = self.resource_config
        named = config.get("current_group_name") or config.get("current_instance_group")
        return named or (ONLY_GROUP if config else None)

    @property
    def instance_groups_dict(self) -> dict[str, Any]:
        """Instance groups by name."""
        return {group["instance_group_name"]: group for group in self.resource_config.get("instance_groups") or []}

    @property
    def instance_groups(self) -> list[str]:
        """Names of the instance groups."""
        return list(self.instance_groups_dict)

    @property
    def current_instance_group_hosts(self) -> list[str]:
        """Instances of this instance's group."""
        group = self.instance_groups_dict.get(self.current_instance_group or "", {})
        return list(group.get("hosts") or [])

    @property
    def distribution_instance_groups(self) -> list[str]:
        """Groups whose instances take part in distributed training."""
        framework = self.hyperparameters.framework
        named = framework.get("sagemaker_distribution_instance_groups")
        if named is not None:
            return list(named)
        distributed = any(framework.get(flag) for flag in DISTRIBUTION_FLAGS)
        return [self.current_instance_group] if distributed and self.current_instance_group else []

    @property
    def distribution_hosts(self) -> list[str]:
        """Instances of the distribution groups, in the order of resourceconfig.json; all if there are no groups."""
        if not self.instance_groups_dict:
            return self.hosts
        taking_part = self.distribution_instance_groups
        groups = [group for name, group in self.instance_groups_dict.items() if name in taking_part]
        return [host for group in groups for host in group.get("hosts") or []]

    @property
    def is_hetero(self) -> bool:
        """Whether there is more than one instance group."""
        return len(self.instance_groups) > 1

    @property
    def master_hostname(self) -> str:
        """The first instance that takes part in distributed training; the first of all instances if none does."""
        return (self.distribution_hosts or self.hosts)[0]

    @property
    def is_master(self) -> bool:
        """Whether this is the instance of `master_hostname`."""
        return self.current_host == self.master_hostname

    @property
    def is_modelparallel_enabled(self) -> bool:
        """Whether the job has parameters of the model parallelism library."""
        return bool(self.hyperparameters.user.get("mp_parameters"))

    @property
    def module_name(self) -> str:
        """The entry point without its ``.py``."""
        return self.entry_point[:-3] if self.entry_point.endswith(".py") else self.entry_point

    @property
    def module_dir(self) -> str:
        """The submit directory as given by the client, not the current directory of the code."""
        return str(self.hyperparameters.reserved.get("sagemaker_submit_directory") or self.layout.code)

    @property
    def log_level(self) -> int:
        """Numeric level of Python's logging."""
        level = self.hyperparameters.reserved.get("sagemaker_container_log_level")
        return DEFAULT_LOG_LEVEL if level is None else level

    @property
    def channel_input_dirs(self) -> dict[str, str]:
        """Directory of each channel, by name."""
        return {name: str(self.layout.channel(name)) for name in sorted(self.input_data_config)}

    @property
    def user_arguments(self) -> tuple[str, ...]:
        """Arguments of the script."""
        return as_arguments(self.hyperparameters.user)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in ``path``; empty if the file does not exist."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{path} holds {type(value).__name__}; a JSON object is needed")
    return value
