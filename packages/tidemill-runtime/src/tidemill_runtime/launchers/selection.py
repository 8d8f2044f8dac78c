"""Selects the launcher of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.compiler import is_enabled
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.launchers.mpi import MPILauncher
from tidemill_runtime.launchers.parameter_server import ParameterServerLauncher
from tidemill_runtime.launchers.python import ColdLauncher
from tidemill_runtime.launchers.warm import WarmLauncher
from tidemill_runtime.tf_config import has_parameter_servers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidemill_runtime.environment import Environment
    from tidemill_runtime.launchers.base import Launcher

DATA_PARALLEL = "sagemaker_distributed_dataparallel_enabled"


def launcher_for(environment: Environment, variables: Mapping[str, str]) -> Launcher:
    """Return the launcher for the job's distribution.

    Args:
        variables: The container's environment; ``TIDEMILL_WARM_SOCKET`` names the socket of a process that forks
            scripts.

    Raises:
        ConfigurationError: No launcher supports the job.
    """
    if environment.hyperparameters.framework.get(DATA_PARALLEL):
        raise ConfigurationError(
            f"{DATA_PARALLEL}: SageMaker's data parallelism is not offered; leave out distribution={{'smdistributed': "
            "{'dataparallel': ...}}, and use Horovod under distribution={'mpi': ...}"
        )
    if has_parameter_servers(environment):
        return ParameterServerLauncher(environment)
    if environment.hyperparameters.framework.get("sagemaker_mpi_enabled"):
        return MPILauncher(environment)
    # Importing TensorFlow switches the compiler on, and a forked script does not import it again.
    warm = None if is_enabled(environment.hyperparameters.framework) else variables.get("TIDEMILL_WARM_SOCKET")
    return WarmLauncher(Path(warm), num_gpus=environment.devices.num_gpus) if warm else ColdLauncher()
