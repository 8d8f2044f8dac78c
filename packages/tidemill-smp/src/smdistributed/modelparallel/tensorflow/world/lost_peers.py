"""Ranks that left, failed or died, and how error messages explain it."""

from collections.abc import Callable
from dataclasses import dataclass

from smdistributed.modelparallel.backend.exceptions import SMPPeerLostError

DIED = "died"
"""The connection ended before the rank said why."""
FAILED = "failed"
"""The rank reported the exception that ended it."""
LEFT = "left"
"""The rank closed the connection at the normal end of its script."""
_CAUSE_ORDER = {DIED: 0, FAILED: 1, LEFT: 2}


@dataclass(frozen=True)
class LostPeer:
    """One rank that is no longer connected."""

    rank: int
    how: str
    words: str = ""


class LostPeers:
    """The lost peers of this rank. Not thread-safe: the caller holds a lock."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._lost_peers: dict[int, LostPeer] = {}

    def add(self, lost: LostPeer) -> bool:
        """Record a lost peer and return whether it is new; the first record of a rank stays."""
        if lost.rank in self._lost_peers:
            return False
        self._lost_peers[lost.rank] = lost
        return True

    def has(self, rank: int) -> bool:
        """Return whether a rank is lost, for any reason."""
        return rank in self._lost_peers

    def root_cause(self) -> LostPeer | None:
        """Return the rank failure that explains the others: a death before an exception. None if no rank failed."""
        failed = [lost for lost in self._lost_peers.values() if lost.how != LEFT]
        return min(failed, key=lambda lost: _CAUSE_ORDER[lost.how], default=None)

    def explain(self, lost: LostPeer) -> str:
        """Return one sentence for an error message."""
        if lost.how == DIED:
            return f"{self._name_of(lost.rank)} died: its connection ended without a word (killed, or its machine lost)"
        if lost.how == FAILED:
            return f"{self._name_of(lost.rank)} ended with {lost.words}"
        return f"{self._name_of(lost.rank)} has come to its end (it left the job normally)"

    def check(self, peers: tuple[int, ...], doing: str) -> None:
        """Raise if one of `peers` is lost, or any rank died or failed.

        Raises:
            SMPPeerLostError: Names the operation of this rank.
        """
        lost = self.root_cause() or next((self._lost_peers[peer] for peer in peers if peer in self._lost_peers), None)
        if lost is not None:
            raise SMPPeerLostError(f"{self.explain(lost)}; this rank was in {doing}")
