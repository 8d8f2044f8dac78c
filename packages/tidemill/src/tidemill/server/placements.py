"""Open the placement of instances on the cluster that the settings select."""

from pathlib import Path

from tidemill.errors import ConfigurationError
from tidemill.executors.cluster.placement import AgentPlacement
from tidemill.executors.slurm.placement import SlurmPlacement
from tidemill.settings import Settings


def open_placement(settings: Settings, state: Path) -> AgentPlacement:
    """Return the placement on the machines of a cluster.

    Args:
        settings: Settings of the service; ``executor`` is not ``local``.
        state: State directory of the service.

    Raises:
        ConfigurationError: A package or a command is missing, or the cluster cannot be reached.
    """
    if settings.executor == "slurm":
        return SlurmPlacement(
            state / "cluster/slurm",
            options=settings.slurm_instance_types,
            python=settings.slurm_python,
            prolog=settings.slurm_prolog,
        )
    # Ray takes more than a second to import, and is an extra of the distribution.
    try:
        from tidemill.executors.ray.placement import RayPlacement
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"executor = 'ray' needs {error.name}, which is not installed: `pip install 'tidemill[ray]'`"
        ) from error
    return RayPlacement(settings.ray_address, shares=settings.ray_instance_types)
