"""Collective decisions of a job's processes about the functions in which they communicate.

The job would hang if a process waited at a point that another process never reaches. So the processes meet only in
calls of functions that communicate anyway, once every `EVERY` calls. At a meeting they sum their state over all
processes: the sums show what all of them have prepared and compiled, and send the choice of rank 0 to all ranks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill_tensorflow.compiler.variants.trials import PLAIN

if TYPE_CHECKING:
    from tidemill_tensorflow.compiler.several.groups import ProcessGroup

EVERY = 8
"""Number of calls of communicating functions between two meetings."""
MAX_CALLS = 20_000
"""Number of calls after the first function was split, after which all undecided functions stay plain."""
MAX_BALLOTS = 4
_FIELDS = 8


@dataclass
class Ballot:
    """State of one function: what this process reports, and what all processes agree on.

    Attributes:
        fingerprint: Digest of the function's compiled part, which must be equal on all ranks. Empty until prepared.
        is_failed: Whether this process cannot compile the function.
        is_due: Whether compiling the function pays on rank 0; ignored on other ranks.
        choice: The variant that rank 0 chooses; ignored on other ranks.
        lost: The variants that are too slow for rank 0 to go on with; ignored on other ranks.
        begins: Whether all processes split the function now.
        all_prepared: Whether all processes have split the function.
        dropped: The variants that no process runs any more.
        decision: The variant that all processes run from now on; None while undecided.
        is_refused: Whether the decision is plain because a process cannot compile the function.
    """

    fingerprint: str = ""
    is_compiled: bool = False
    is_failed: bool = False
    is_due: bool = False
    choice: str | None = None
    lost: frozenset[str] = frozenset()
    begins: bool = False
    all_prepared: bool = False
    all_compiled: bool = False
    dropped: frozenset[str] = frozenset()
    decision: str | None = None
    is_refused: bool = False

    def _digest(self) -> int:
        return int.from_bytes(hashlib.sha256(self.fingerprint.encode()).digest()[:4], "big")


class Agreement:
    """Count calls of communicating functions, and meet the other processes until every function is decided.

    Args:
        group: The processes that decide together.
        variants: Names of the variants to choose from, plain first.
    """

    def __init__(self, group: ProcessGroup, variants: tuple[str, ...]) -> None:
        self.group = group
        self.meetings = 0
        self.variants = variants
        self._calls = 0
        self._begun_at: int | None = None
        self._ballots: list[Ballot] = []
        self._is_over = False

    def join(self) -> Ballot | None:
        """Return the ballot of a new function, or None if the meetings are over or all ballots are taken.

        All processes must call this in the same order.
        """
        if self._is_over or len(self._ballots) == MAX_BALLOTS:
            return None
        self._ballots.append(Ballot())
        return self._ballots[-1]

    def advance(self) -> None:
        """Count a call, and meet the other processes at every `EVERY`-th call."""
        if self._is_over:
            return
        self._calls += 1
        if self._calls % EVERY == 0:
            self._meet()

    def _meet(self) -> None:
        self.meetings += 1
        values = [value for ballot in self._ballots for value in self._values(ballot)]
        sums = self.group.sum([*values, *[0] * (MAX_BALLOTS * _FIELDS - len(values))])
        decided = []
        for index in range(MAX_BALLOTS):
            joined, prepared, digests, compiled, failed, choice, lost, due = sums[
                index * _FIELDS : (index + 1) * _FIELDS
            ]
            if index < len(self._ballots):
                self._update(self._ballots[index], prepared, digests, compiled, failed, choice)
                self._ballots[index].dropped = self._names(lost)
                self._ballots[index].begins = bool(due)
            if prepared or failed:
                self._begun_at = self._calls if self._begun_at is None else self._begun_at
            if joined:
                is_compiled = compiled == self.group.size
                decided.append(bool(failed) or (bool(choice) and (choice == 1 or is_compiled)))
        # Computed from the sums alone, which are equal on all ranks: so all ranks stop meeting at the same call.
        is_late = self._begun_at is not None and self._calls - self._begun_at >= MAX_CALLS
        self._is_over = (bool(decided) and all(decided)) or is_late
        if self._is_over:
            self._close()

    def _values(self, ballot: Ballot) -> list[int]:
        """Return this process's terms of the sums; the first one counts the processes that have the function.

        Only rank 0 adds a choice, 0 for none and 1 for the first variant, and a bit for each variant that has lost.
        """
        is_prepared = bool(ballot.fingerprint)
        is_first = self.group.rank == 0
        choice = self.variants.index(ballot.choice) + 1 if ballot.choice and is_first else 0
        lost = sum(1 << index for index, name in enumerate(self.variants) if name in ballot.lost and is_first)
        return [
            1,
            int(is_prepared),
            ballot._digest() if is_prepared else 0,
            int(ballot.is_compiled),
            int(ballot.is_failed),
            choice,
            lost,
            int(ballot.is_due and is_first),
        ]

    def _names(self, bits: int) -> frozenset[str]:
        return frozenset(name for index, name in enumerate(self.variants) if bits >> index & 1)

    def _update(self, ballot: Ballot, prepared: int, digests: int, compiled: int, failed: int, choice: int) -> None:
        """Update a ballot by the sums over all processes."""
        size = self.group.size
        ballot.all_prepared = prepared == size
        differs = ballot.all_prepared and digests != size * ballot._digest()
        if differs:
            ballot.is_failed = True  # the other ranks learn of this at the next meeting
        ballot.all_compiled = compiled == size and not differs
        if failed:
            ballot.decision, ballot.is_refused = PLAIN, True
        elif choice and not differs and (choice == 1 or ballot.all_compiled):
            ballot.decision = self.variants[choice - 1]

    def _close(self) -> None:
        for ballot in self._ballots:
            if ballot.decision is None:
                ballot.decision, ballot.is_refused = PLAIN, True
