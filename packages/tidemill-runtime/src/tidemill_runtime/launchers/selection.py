"""Which launcher a job needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.launchers.python import ColdLauncher

if TYPE_CHECKING:
    from tidemill_runtime.environment import Environment
    from tidemill_runtime.launchers.base import Launcher

__all__ = ["launcher_for"]

OTHER_DISTRIBUTIONS = (
    "sagemaker_mpi_enabled",
    "sagemaker_distributed_dataparallel_enabled",
    "sagemaker_multi_worker_mirrored_strategy_enabled",
    "sagemaker_parameter_server_enabled",
)


def launcher_for(environment: Environment) -> Launcher:
    """The launcher that the job's distribution asks for.

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
    return ColdLauncher()
