"""The seam between the executor of a cluster and what places its instances on machines, e.g. Ray."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.core.machine_share import MachineShare
from tidemill.executors.base import Capacity
from tidemill.instance.spec import InstanceRef

__all__ = ["Placement"]


class Placement(Protocol):
    """Reserves machines, and starts and ends the agents of instances on them.

    What it reserved outlives the service: a later service finds it by the instances' references. Methods may be called
    from several threads.
    """

    def capacity(self) -> Capacity: ...

    def reserve(self, job_id: str, attempt: int, shares: Sequence[MachineShare]) -> tuple[str, ...]:
        """Reserve a machine for each instance of an attempt, all or none. Return the machines' IP addresses in order.

        Repeating it returns the same machines.

        Args:
            job_id: The job.
            attempt: Its attempt.
            shares: What each instance takes of its machine.

        Raises:
            CapacityError: The cluster has too few machines that fit, busy ones included.
            MachinesBusy: Too few of those that fit are free.
            LaunchError: The cluster cannot be reached.
        """
        ...

    def start(self, ref: InstanceRef, assignment: bytes) -> None:
        """Start the agent of an instance on its machine. An agent that was started is left as it is.

        Raises:
            LaunchError: It cannot be started.
        """
        ...

    def kill(self, ref: InstanceRef) -> bool:
        """SIGKILL to the agent and to all processes of the instance. Return whether its machine could be reached."""
        ...

    def release(self, job_id: str) -> None:
        """Kill what is left of a job, remove its files on the machines, and give the machines back.

        A machine that cannot be reached keeps its part, which ends with the lease.
        """
        ...

    def close(self) -> None:
        """Disconnect from the cluster. Instances run on."""
        ...
