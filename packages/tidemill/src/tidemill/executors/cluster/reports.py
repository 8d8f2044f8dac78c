"""The interface through which the service's API passes on the reports of agents."""

from collections.abc import Sequence
from typing import Protocol

from tidemill.core.instances import InstanceRef
from tidemill.instance.status import Phase, RelayReport, StopReason


class UnknownInstance(Exception):
    """The attempt is over, does not exist, or belongs to another job."""


class InstanceReports(Protocol):
    """Processes the reports of agents. Methods that are not asynchronous may be called from several threads."""

    @property
    def lease_s(self) -> float:
        """Length of a lease in seconds."""

    async def renew(self, ref: InstanceRef, *, session: str) -> StopReason | None:
        """Renew the lease, without waiting for a thread. Return why the instance is to stop, if it is.

        The first renewal by a start of the service returns when it is stored.

        Args:
            session: Name of the session of the keys that signed the request.

        Raises:
            UnknownInstance: The attempt is over, its lease has ended, or it is not of that job.
            ServiceUnavailable: The renewal could not be stored.
        """

    def report(
        self,
        ref: InstanceRef,
        *,
        session: str,
        phases: Sequence[Phase],
        ended: str,
        lost: bool,
        relay: RelayReport | None = None,
    ) -> StopReason | None:
        """Record the report of an agent whose lease was renewed. Return why the instance is to stop, if it is.

        Args:
            session: Name of the session of the keys that signed the report.
            phases: All phases so far; empty if they have not changed.
            ended: The result as JSON; empty while the instance runs.
            lost: Whether the instance has ended without a result.
            relay: Where its model server can be reached. Default: nothing new.

        Raises:
            UnknownInstance: The attempt is over, its lease has ended, or it does not belong to that job.
            ValueError: ``ended`` is not a valid result.
        """

    def deliver(self, ref: InstanceRef, lines: bytes, *, session: str, offset: int) -> int:
        """Store lines of an attempt's log. Return how many bytes of that log the service has.

        Args:
            lines: Complete lines in the format of the log store.
            session: Name of the session of the keys that signed the request.

        Raises:
            UnknownInstance: As for `report`.
            ValueError: There is a gap before ``offset``, or the last line is incomplete.
        """

    def deliver_samples(self, ref: InstanceRef, lines: bytes, *, session: str) -> None:
        """Store samples of what an attempt uses.

        Args:
            lines: Whole lines in the format of `tidemill.instance.samples`; those that are stored are ignored.
            session: Name of the session of the keys that signed the request.

        Raises:
            UnknownInstance: As for `report`.
            ValueError: There is no sample in the lines.
        """

    async def await_stop(self, ref: InstanceRef, *, timeout_s: float) -> StopReason | None:
        """Wait at most ``timeout_s`` seconds for a request to stop an attempt. Return its reason; None on time-out.

        Args:
            timeout_s: Longest wait in seconds.
        """
