"""The lease of an instance on another machine, as the service stores it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoredLease:
    """A lease that has not ended, as the earlier starts of the service left it.

    Attributes:
        lease_s: Length of the lease in seconds, as the agent knows it.
        silent_s: Seconds for which agents could reach the starts of the service after the last one that renewed the
            lease. At least as much time has passed since that renewal.
    """

    lease_s: float
    silent_s: float
