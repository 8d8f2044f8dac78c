"""What became of ranks that are no longer there, and the words for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from smdistributed.modelparallel.backend.exceptions import SMPPeerLostError

__all__ = ["DIED", "FAILED", "LEFT", "Loss", "Losses"]

DIED = "died"
"""The connection ended without a word."""
FAILED = "failed"
"""It said that an exception ended it."""
LEFT = "left"
"""It said goodbye: its script came to an end."""
_GRAVITY = {DIED: 0, FAILED: 1, LEFT: 2}


@dataclass(frozen=True)
class Loss:
    """One rank that is gone."""

    rank: int
    how: str
    words: str = ""


class Losses:
    """The ranks that are gone. The caller sees to locking."""

    def __init__(self, name_of: Callable[[int], str]) -> None:
        self._name_of = name_of
        self._losses: dict[int, Loss] = {}

    def add(self, loss: Loss) -> bool:
        """Note a loss; the first word about a rank stays. Whether it is news."""
        if loss.rank in self._losses:
            return False
        self._losses[loss.rank] = loss
        return True

    def has(self, rank: int) -> bool:
        """Whether this rank is gone in any way."""
        return rank in self._losses

    def gravest(self) -> Loss | None:
        """The loss that explains the others: a death before a failure; None if nobody is missed."""
        missed = [loss for loss in self._losses.values() if loss.how != LEFT]
        return min(missed, key=lambda loss: _GRAVITY[loss.how], default=None)

    def explain(self, loss: Loss) -> str:
        """One sentence."""
        if loss.how == DIED:
            return f"{self._name_of(loss.rank)} died: its connection ended without a word (killed, or its machine lost)"
        if loss.how == FAILED:
            return f"{self._name_of(loss.rank)} ended with {loss.words}"
        return f"{self._name_of(loss.rank)} has come to its end (it left the job normally)"

    def check(self, peers: tuple[int, ...], doing: str) -> None:
        """Raise if one of `peers` is gone, or any rank is missed.

        Raises:
            SMPPeerLostError: With what this rank was doing.
        """
        loss = self.gravest() or next((self._losses[peer] for peer in peers if peer in self._losses), None)
        if loss is not None:
            raise SMPPeerLostError(f"{self.explain(loss)}; this rank was in {doing}")
