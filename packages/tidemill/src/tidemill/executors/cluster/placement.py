"""The interface between the executor of a cluster and the scheduler that places instances on machines, e.g. Ray."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tidemill.core.instances import InstanceRef
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

    def watch(self, ended: Callable[[str, int, str], None]) -> None:
        """Begin to report attempts whose processes have certainly ended, if the scheduler can tell. Called once.

        Args:
            ended: Called with the job's id, the attempt and a sentence that says how the scheduler ended it. Instances
                that have reported their end may be among those of the attempt.
        """

    def reserve(self, job_id: str, attempt: int, instance_types: Sequence[str], *, title: str) -> tuple[str, ...]:
        """Reserve a machine for each instance of an attempt, all or none. Return the machines' IP addresses in order.

        A repeated call returns the same machines.

        Args:
            instance_types: The type of each instance.
            title: Name of the job, shown to users of the cluster if the scheduler can.

        Raises:
            CapacityError: The cluster has too few suitable machines, including busy ones.
            MachinesBusy: The cluster may have enough suitable machines later. The request may keep its place in the
                scheduler's queue, until it is repeated or the job is released.
            LaunchError: The machines cannot be reserved.
        """

    def start(self, assignments: Mapping[InstanceRef, bytes]) -> None:
        """Start the agents of instances of one attempt on their machines, unless they were started before.

        Raises:
            MachinesBusy: A machine has failed meanwhile.
            LaunchError: An agent cannot be started.
        """

    def kill(self, ref: InstanceRef) -> bool:
        """Send SIGKILL to the agent and all processes of an instance. Return whether its machine was reached.

        Args:
            ref: The attempt.
        """

    def waits(self, job_id: str) -> bool:
        """Return whether a request for machines of a job is in the scheduler's queue, or may be.

        Args:
            job_id: Hexadecimal id of the job.
        """

    def release(self, job_id: str) -> None:
        """Kill the remaining processes of a job, remove its files on the machines, and release the machines.

        On a machine that cannot be reached, the processes end with their lease.

        Args:
            job_id: Hexadecimal id of the job.
        """

    def close(self) -> None:
        """Disconnect from the cluster. Instances run on."""
