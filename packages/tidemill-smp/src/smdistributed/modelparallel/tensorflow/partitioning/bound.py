"""Branch and bound over the walks of a lattice, for the last few percent that dynamic programming misses.

Dynamic programming undercounts the messages of tensors that several later partitions use, so that its value is a tight
lower bound: only walks whose bound is below the best known cost need a full evaluation. Usually a few dozen do; after
`MOST_VISITS` the search stops with the best cut found so far.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smdistributed.modelparallel.tensorflow.partitioning.cost import Costs
from smdistributed.modelparallel.tensorflow.partitioning.lattice import (
    INFINITE,
    Downsets,
    Row,
    measures_of,
    slackened,
    values,
)

MOST_VISITS = 5_000

Key = tuple[int, ...]


@dataclass(frozen=True)
class Proven:
    """The best assignments found, and whether they are proven optimal."""

    least: tuple[int, ...]
    """The assignment with the least first objective."""
    assignment: tuple[int, ...]
    """The assignment with the best second objective within the slack of the first."""
    exact: bool


@dataclass
class _Best:
    key: Key
    walk: list[int]
    visits: int = 0


def prove(lattice: Downsets, costs: Costs, start: tuple[int, ...], *, bound: int) -> Proven:
    """Improve on a known assignment until it is proven optimal, or `MOST_VISITS` walks were evaluated.

    Args:
        lattice: All closed sets.
        costs: The exact costs of assignments.
        start: The known assignment with the least first objective.
        bound: Its first objective.
    """
    rows = [lattice.row(state, INFINITE) for state in range(lattice.states - 1)]

    def first_of(row: Row) -> np.ndarray:
        return measures_of(row, costs)[0]

    def second_of(row: Row) -> np.ndarray:
        return measures_of(row, costs)[1]

    firsts, seconds = ([measure(row) for row in rows] for measure in (first_of, second_of))
    ahead = [
        values(lattice, costs, first_of, np.maximum),
        values(lattice, costs, second_of, np.maximum),
        values(lattice, costs, _communication, np.add),
    ]
    search = _Search(lattice, costs, rows, firsts, seconds, ahead)
    least = search.run((bound,), lambda one, two, three: (one,), limit=INFINITE)
    minimum = least.key[0]
    limit = slackened(minimum, costs.options.slack)
    first = tuple(lattice.assignment(least.walk)) if least.walk else start
    best = search.run((INFINITE, INFINITE), lambda one, two, three: (two, three), limit=limit)
    found = tuple(lattice.assignment(best.walk)) if best.walk else first
    return Proven(first, found, exact=max(least.visits, best.visits) <= MOST_VISITS)


class _Search:
    def __init__(
        self,
        lattice: Downsets,
        costs: Costs,
        rows: list[Row],
        firsts: list[np.ndarray],
        seconds: list[np.ndarray],
        ahead: list[np.ndarray],
    ) -> None:
        self._lattice, self._costs, self._rows = lattice, costs, rows
        self._firsts, self._seconds = firsts, seconds
        self._ahead = ahead

    def run(self, key: Key, choose: Callable[[int, int, int], Key], *, limit: int) -> _Best:
        """Return the walk with the least key among those whose first objective is within the limit."""
        best = _Best(key, [])
        self._visit([0], (0, 0, 0), best, choose, limit)
        return best

    def _visit(
        self,
        walk: list[int],
        sofar: tuple[int, int, int],
        best: _Best,
        choose: Callable[[int, int, int], Key],
        limit: int,
    ) -> None:
        part, state = len(walk) - 1, walk[-1]
        if part == self._costs.partitions:
            self._evaluate(walk, best, choose, limit)
            return
        for estimate, reached, target in self._branches(part, state, sofar, choose, limit):
            if estimate >= best.key:
                return  # they are sorted
            best.visits += 1
            if best.visits > MOST_VISITS:
                return
            self._visit([*walk, target], reached, best, choose, limit)

    def _branches(
        self,
        part: int,
        state: int,
        sofar: tuple[int, int, int],
        choose: Callable[[int, int, int], Key],
        limit: int,
    ) -> list[tuple[Key, tuple[int, int, int], int]]:
        """Return the next states with a lower bound on the cost of walks through each, lowest bound first."""
        row = self._rows[state]
        ones = np.maximum(self._firsts[state][part], sofar[0])
        twos = np.maximum(self._seconds[state][part], sofar[1])
        threes = row.communication + sofar[2]
        first = np.maximum(ones, self._ahead[0][part + 1, row.targets])
        second = np.maximum(twos, self._ahead[1][part + 1, row.targets])
        third = threes + self._ahead[2][part + 1, row.targets]
        open_ = np.flatnonzero((first <= limit) & (first < INFINITE))
        found = [
            (
                choose(int(first[i]), int(second[i]), int(third[i])),
                (int(ones[i]), int(twos[i]), int(threes[i])),
                int(row.targets[i]),
            )
            for i in open_
        ]
        return sorted(found)

    def _evaluate(self, walk: list[int], best: _Best, choose: Callable[[int, int, int], Key], limit: int) -> None:
        first, second, communication = self._costs.measures(self._lattice.assignment(walk))
        key = choose(first, second, communication)
        if first <= limit and key < best.key:
            best.key, best.walk = key, walk


def _communication(row: Row) -> np.ndarray:
    return row.communication
