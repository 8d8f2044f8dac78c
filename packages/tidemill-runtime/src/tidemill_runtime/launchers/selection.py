"""Which launcher a job needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.launchers.python import ColdLauncher
from tidemill_runtime.launchers.warm import WarmLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill_runtime.environment import Environment
    from tidemill_runtime.launchers.base import Launcher

__all__ = ["launcher_for"]

OTHER_DISTRIBUTIONS = (
    "sagemaker_mpi_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
    "sagemaker_parameter_server_enabled",
)


def launcher_for(environment: Environment, variables: Mapping[str, str]) -> Launcher:
    """The launcher that the job's distribution asks for.

    Args:
        environment: The job.
        variables: The container's environment; ``TIDEMILL_WARM_SOCKET`` names a process that forks scripts.

    Raises:
        ConfigurationError: There is none for it.
    """
    asked = [name for name in OTHER_DISTRIBUTIONS if environment.hyperparameters.framework.get(name)]
    # Parameter servers make no sense on one instance: ignored there, as SageMaker does.
    ignored = asked == ["sagemaker_parameter_server_enabled"] and len(environment.hosts) == 1
    if asked and not ignored:
        raise ConfigurationError(
            f"distribution {', '.join(asked)} on {len(environment.hosts)} instances: this version starts plain scripts "
            "only; leave out `distribution`, or let the script set up its own cluster"
        )
    warm = variables.get("TIDEMILL_WARM_SOCKET")
    return WarmLauncher(Path(warm), num_gpus=environment.devices.num_gpus) if warm else ColdLauncher()
