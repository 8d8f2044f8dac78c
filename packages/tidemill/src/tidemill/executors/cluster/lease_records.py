"""The interface to the stored part of the leases: what a later service needs to know about them."""

from collections.abc import Collection, Mapping
from typing import Protocol

from tidemill.core.instances import InstanceRef
from tidemill.instance.lease import StoredLease


class LeaseRecords(Protocol):
    """Stores leases. What a method has stored is durable when it returns.

    Methods that are not asynchronous may be called from several threads, and wait for the disk.

    Raises:
        ServiceUnavailable: By each method, if nothing was stored, e.g. because another service has taken the lead.
    """

    def begin(self) -> Mapping[InstanceRef, StoredLease]:
        """Number this start of the service, and return the leases that have not ended. Called before all others."""

    def add(self, ref: InstanceRef, *, lease_s: float) -> None:
        """Store the lease of an instance that this start launches.

        Args:
            lease_s: Length of the lease in seconds.
        """

    def adopt(self, refs: Collection[InstanceRef], *, lease_s: float) -> None:
        """Store leases that no start has stored, and that were last renewed before this start.

        Args:
            refs: The attempts.
            lease_s: Length of the leases in seconds.
        """

    async def renew(self, ref: InstanceRef) -> None:
        """Store that this start has renewed a lease. Later renewals by the same start need no call.

        Args:
            ref: The attempt.
        """

    async def store_reachable(self, seconds: float) -> None:
        """Store for how long agents have been able to reach this start.

        Args:
            seconds: Time since the start.
        """

    def remove(self, refs: Collection[InstanceRef]) -> None:
        """Remove leases that have ended, or whose instance never ran.

        Args:
            refs: The attempts; unknown ones are no error.
        """
