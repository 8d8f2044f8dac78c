"""What the service's own API passes on of the reports of agents."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.instance.spec import InstanceRef
from tidemill.instance.status import Phase, StopReason

__all__ = ["InstanceReports", "UnknownInstance"]


class UnknownInstance(Exception):
    """There is no such attempt any more, or it belongs to another job."""


class InstanceReports(Protocol):
    """Takes the reports of agents. Methods that are not asynchronous may be called from several threads."""

    @property
    def lease_s(self) -> float:
        """Length of a lease."""
        ...

    def renew(self, ref: InstanceRef, *, job_name: str) -> StopReason | None:
        """Renew the lease, without waiting for files. Return why the instance is to stop, if it is.

        Args:
            ref: The attempt.
            job_name: Of the job whose keys signed the request.

        Raises:
            UnknownInstance: The attempt is over, its lease has ended, or it is not of that job.
        """
        ...

    def report(
        self, ref: InstanceRef, *, job_name: str, phases: Sequence[Phase], ended: str, lost: bool
    ) -> StopReason | None:
        """Record the report of an agent, and renew the lease. Return why the instance is to stop, if it is.

        Args:
            ref: The attempt.
            job_name: Of the job whose keys signed the report.
            phases: All so far; none if nothing has changed.
            ended: The result as JSON; empty while the instance runs.
            lost: The instance has ended without a result.

        Raises:
            UnknownInstance: The attempt is over, its lease has ended, or it is not of that job.
            ValueError: ``ended`` is no result.
        """
        ...

    def deliver(self, ref: InstanceRef, lines: bytes, *, job_name: str, offset: int) -> int:
        """Store lines of the log. Return how many bytes of its log the service has.

        Raises:
            UnknownInstance: As for `report`.
            ValueError: There is a gap before ``offset``, or the last line is incomplete.
        """
        ...

    async def await_stop(self, ref: InstanceRef, *, timeout_s: float) -> StopReason | None:
        """Wait until an attempt is to stop, at most ``timeout_s``. Return the reason; None on time-out."""
        ...
