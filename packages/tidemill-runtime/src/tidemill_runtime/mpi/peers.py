"""The interface between the supervisors of a job's instances: a directory on one machine, TCP on several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.mpi.network import NetworkPeers
from tidemill_runtime.mpi.shared_directory import DirectoryPeers

if TYPE_CHECKING:
    import socket
    from typing import Protocol

    from tidemill_runtime.mpi.plan import MpiPlan, Outcome
else:
    Protocol = object  # missing in Python 3.7, and only needed by type checkers


class Peers(Protocol):
    """The other instances of a job, from the view of one supervisor.

    A notice has a name, e.g. ``failed``, and contains an outcome. The first notice of each name is kept.
    """

    def listen(self) -> socket.socket:
        """Return the unix socket at which commands for MPI's daemons arrive, each with its three streams.

        An empty message announces a new notice.
        """

    def notify(self, notice: str, outcome: Outcome) -> None:
        """Publish a notice to all instances, including this one, without waiting for them.

        Args:
            outcome: How the job ended.
        """

    def read_notice(self, notice: str) -> Outcome | None:
        """Return the notice of that name, if any.

        Returns:
            The outcome; None without the notice.
        """

    def run(self, host: str, command: str) -> int:
        """Run a command on another instance; its output goes to this process's. Return its exit status.

        Args:
            host: Name of the instance.
            command: A command for a shell.

        Returns:
            1 if the instance did not begin in time.
        """

    def close(self) -> None:
        """Deliver pending notices to instances that may wait for them."""


def peers_of(plan: MpiPlan) -> Peers | None:
    """Return the peers of an instance; None if it is the only instance."""
    if plan.network:
        return NetworkPeers(Path(plan.shared), file=Path(plan.network), host=plan.host, others=plan.others)
    return DirectoryPeers(Path(plan.shared), host=plan.host, others=plan.others) if plan.shared else None
