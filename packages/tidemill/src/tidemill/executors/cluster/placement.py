"""The interface between the executor of a cluster and the scheduler that places instances on machines, e.g. Ray."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.core.instances import InstanceRef
from tidemill.core.machine_share import MachineShare
from tidemill.executors.base import Capacity


class AgentPlacement(Protocol):
    """Reserves machines, and starts and ends the agents of instances on them.

    Reservations outlive the service; a later service finds them by the references of the instances. Methods may be
    called from several threads.
    """

    def capacity(self) -> Capacity:
        """Return the capacity of the cluster, which may change.

        Raises:
            LaunchError: The cluster cannot be reached.
        """

    def reserve(self, job_id: str, attempt: int, shares: Sequence[MachineShare]) -> tuple[str, ...]:
        """Reserve a machine for each instance of an attempt, all or none. Return the machines' IP addresses in order.

        A repeated call returns the same machines.

        Args:
            shares: The share of its machine that each instance takes.

        Raises:
            CapacityError: The cluster has too few suitable machines, including busy ones.
            MachinesBusy: The cluster has enough suitable machines, but too few are free.
            LaunchError: The cluster cannot be reached.
        """

    def start(self, ref: InstanceRef, assignment: bytes) -> None:
        """Start the agent of an instance on its machine, unless the agent was started before.

        Raises:
            LaunchError: The agent cannot be started.
        """

    def kill(self, ref: InstanceRef) -> bool:
        """Send SIGKILL to the agent and all processes of an instance. Return whether its machine was reached.

        Args:
            ref: The attempt.
        """

    def release(self, job_id: str) -> None:
        """Kill the remaining processes of a job, remove its files on the machines, and release the machines.

        On a machine that cannot be reached, the processes end with their lease.

        Args:
            job_id: Hexadecimal id of the job.
        """

    def close(self) -> None:
        """Disconnect from the cluster. Instances run on."""
