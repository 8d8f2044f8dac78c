"""Dynamic programming over cuts.

A *state* is a set of groups that is closed under predecessors, and so can come first. With each partition the pipeline
moves from one state to the next, from the empty state to the full one; the cost of a partition depends only on the
states before and after it. So the best walk is found backward, state by state, for any objective that combines
partitions by maximum or sum. The lattices differ in their states:

- `Linear`: the prefixes of one order of the groups. n + 1 states, n * n / 2 slices: O(P n^2), in NumPy vectors. A chain
  has no other states, so the result is optimal.
- `Downsets`: all closed sets, which is optimal for any graph, with one exception: if several later partitions use a
  tensor, its sender is charged one message here, and all of them in `Costs`. A model with few parallel branches has few
  closed sets; one with many has exponentially many, and the enumeration stops.

There are three sweeps: minimize the maximum of the first objective; then, within its slack, that of the second; then,
within both, communication.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from smdistributed.modelparallel.tensorflow.partitioning.cost import Costs

INFINITE = 2**60
MOST_STATES = 1500
MOST_STEPS = 150_000


@dataclass(frozen=True, slots=True)
class Row:
    """The partitions that can begin at one state, one per array entry."""

    targets: np.ndarray
    """State at which each partition ends."""
    time: np.ndarray
    static: np.ndarray
    kept: np.ndarray
    """Bytes for each microbatch that is alive."""
    communication: np.ndarray


class Lattice(Protocol):
    """States ordered so that every step leads to a later one; the first is empty, the last is full."""

    states: int

    def row(self, state: int, limit: int) -> Row:
        """Return the partitions that begin at `state`; those whose first objective exceeds `limit` may be omitted.

        Args:
            state: From 0.
            limit: Largest first objective.
        """

    def assignment(self, walk: Sequence[int]) -> list[int]:
        """Return the partition per group, given the states at which the partitions begin and the final state.

        Args:
            walk: As many states as partitions, and one.
        """


@dataclass(frozen=True, slots=True)
class Walk:
    """The best assignment of one lattice."""

    first: int
    """The least maximum of the first objective."""
    least: tuple[int, ...]
    """An assignment with that maximum."""
    assignment: tuple[int, ...]
    """The best assignment within the slack of that maximum."""


def best_walk(lattice: Lattice, costs: Costs, *, upper: int = INFINITE) -> Walk | None:
    """Return the best assignment; None if the first objective exceeds `upper` for all of them.

    Args:
        lattice: The possible cuts.
        costs: The costs of partitions.
        upper: Bound of the first objective. Default: none.
    """

    def first(row: Row) -> np.ndarray:
        one = measures_of(row, costs)[0]
        return np.where(one > upper, INFINITE, one)

    def second(row: Row) -> np.ndarray:
        one, two = measures_of(row, costs)
        return np.where(one > bound, INFINITE, two)

    def third(row: Row) -> np.ndarray:
        one, two = measures_of(row, costs)
        return np.where((one > bound) | (two > least), INFINITE, row.communication)

    found = _sweep(lattice, costs, first, np.maximum, upper)
    if found is None:
        return None
    minimum, least_walk = found
    bound = slackened(minimum, costs.options.slack)
    found = _sweep(lattice, costs, second, np.maximum, bound)
    assert found is not None  # the walk of the first sweep satisfies the bound
    least = found[0]
    found = _sweep(lattice, costs, third, np.add, bound)
    assert found is not None
    return Walk(minimum, tuple(lattice.assignment(least_walk)), tuple(lattice.assignment(found[1])))


def measures_of(row: Row, costs: Costs) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the second objective, per partition and entry.

    Args:
        row: The partitions that begin at one state.

    Returns:
        int64 arrays of shape [partitions, entries].
    """
    time = np.array(costs.base, np.int64)[:, None] + row.time
    size = row.static + np.array(costs.alive, np.int64)[:, None] * row.kept
    return (size, time) if costs.options.optimize == "memory" else (time, size)


def slackened(minimum: int, slack: float) -> int:
    """Return the largest allowed value of the first objective.

    Args:
        minimum: Least value of the first objective.
        slack: Share of it, e.g. 0.05.
    """
    return minimum + int(minimum * slack)


def _sweep(
    lattice: Lattice,
    costs: Costs,
    measure: Callable[[Row], np.ndarray],
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray],
    limit: int,
) -> tuple[int, list[int]] | None:
    """Return the least combined objective and the states of its walk; ties go to the earliest cuts."""
    choice = np.zeros((costs.partitions, lattice.states), np.int64)
    value = values(lattice, costs, measure, combine, limit, choice)
    if value[0, 0] >= INFINITE:
        return None
    walk = [0]
    for part in range(costs.partitions):
        walk.append(int(choice[part, walk[-1]]))
    return int(value[0, 0]), walk


def values(
    lattice: Lattice,
    costs: Costs,
    measure: Callable[[Row], np.ndarray],
    combine: Callable[[np.ndarray, np.ndarray], np.ndarray],
    limit: int = INFINITE,
    choice: np.ndarray | None = None,
) -> np.ndarray:
    """Return per partition and state the least combined objective of the rest; write its first step to `choice`.

    Args:
        lattice: The possible cuts.
        measure: Gets a row; returns an array of shape [partitions, entries].
        combine: Joins a partition's value with that of the rest.
        limit: Bound of the first objective. Default: none.
        choice: int array of shape [partitions, states] to fill. Default: none.

    Returns:
        int64, shape [partitions + 1, states].
    """
    partitions, final = costs.partitions, lattice.states - 1
    value = np.full((partitions + 1, lattice.states), INFINITE, np.int64)
    value[partitions, final] = 0
    for state in range(final - 1, -1, -1):
        row = lattice.row(state, limit)
        if not len(row.targets):
            continue
        whole = combine(measure(row), value[1:, row.targets])
        best = whole.argmin(axis=1)
        value[:partitions, state] = np.minimum(whole[np.arange(partitions), best], INFINITE)
        if choice is not None:
            choice[:, state] = row.targets[best]
    return value


class Linear:
    """Prefixes of one topological order of the groups."""

    def __init__(self, costs: Costs, order: Sequence[int], *, connected: bool) -> None:
        self.order = order
        self.states = len(order) + 1
        place = {group: i for i, group in enumerate(order)}
        self._whole = Slices(place, costs.groups.neighbors).whole if connected else None
        self._compute = _prefix(costs.compute[g] + costs.owner[g] for g in order)
        self._static = _prefix(costs.static[g] for g in order)
        self._kept = _prefix(costs.activation[g] for g in order)
        # A row may end as soon as a cost that only grows with the slice exceeds the limit.
        speed = costs.options.optimize == "speed"
        self._load = self._compute if speed else self._static + min(costs.alive) * self._kept
        self._crossing: list[list[tuple[list[int], int, int]]] = [[] for _ in range(self.states)]
        rise = [0] * (self.states + 1)
        for tensor, transfer in zip(costs.groups.tensors, costs.transfer, strict=True):
            made = place[tensor.producer]
            uses = sorted(place[c] for c in tensor.consumers if place[c] > made)
            if uses:  # tensors that flow back are left to the local search, whose costs include them
                rise[made + 1] += transfer
                rise[uses[-1] + 1] -= transfer
                for state in range(made + 1, uses[-1] + 1):
                    self._crossing[state].append((uses, transfer, tensor.bytes))
        self._cut = np.cumsum(np.array(rise[: self.states], np.int64))
        """Per state, the cost of all tensors that cross it."""

    def row(self, state: int, limit: int) -> Row:
        """Return the partitions that begin at a place of the order, as `Lattice.row`.

        Returns:
            One entry for each possible end.
        """
        end = int(np.searchsorted(self._load, self._load[state] + limit, side="right"))
        length = min(end, self.states) - state - 1
        step, kept = np.zeros(length + 1, np.int64), np.zeros(length + 1, np.int64)
        for uses, transfer, size in self._crossing[state]:
            used = min(uses[bisect_left(uses, state)] - state, length)
            step[used] += transfer  # received by slices that reach this use
            kept[used] += size
            step[0] -= transfer  # and not sent by them: it was produced before they begin
            step[min(uses[-1] - state, length)] += transfer
        targets = np.arange(state + 1, state + 1 + length)
        communication = self._cut[targets] + np.cumsum(step)[:length]
        row = Row(
            targets=targets,
            time=self._compute[targets] - self._compute[state] + communication,
            static=self._static[targets] - self._static[state],
            kept=self._kept[targets] - self._kept[state] + np.cumsum(kept)[:length],
            communication=communication,
        )
        return row if self._whole is None else _take(row, self._whole[state][:length])

    def assignment(self, walk: Sequence[int]) -> list[int]:
        """Return the partition per group, as `Lattice.assignment`."""
        parts = [0] * len(self.order)
        for part in range(len(walk) - 1):
            for place in range(walk[part], walk[part + 1]):
                parts[self.order[place]] = part
        return parts


class Slices:
    """Determines which slices of an order are connected, for all n * n / 2 slices at once.

    Going from right to left, a spanning forest of the visited places is kept whose edges have right ends as far left as
    possible: when a new edge closes a cycle, the edge of the cycle with the farthest right end is removed. Then the
    number of components of a slice [i, j) is its number of places minus the forest edges that end before j. O(n^2),
    plus one search in the forest for each edge that closes a cycle.
    """

    def __init__(self, place: dict[int, int], neighbors: Sequence[Sequence[int]]) -> None:
        size = len(place)
        self._forest: list[set[int]] = [set() for _ in range(size)]
        ends = np.zeros(size, np.int64)
        at = sorted(place, key=place.__getitem__)
        self.whole: list[np.ndarray] = [np.zeros(0, bool)] * size
        for i in range(size - 1, -1, -1):
            for k in sorted(place[n] for n in neighbors[at[i]]):
                if k > i:
                    self._connect(i, k, ends)
            self.whole[i] = np.arange(1, size - i + 1) - np.cumsum(ends[i:]) == 1

    def _connect(self, i: int, k: int, ends: np.ndarray) -> None:
        """Add the edge from place `i` to `k > i` unless it closes a cycle whose right ends all are at most `k`."""
        ring = self._path(i, k)
        if ring is not None:
            a, b = max(pairwise(ring), key=max)
            if max(a, b) <= k:
                return
            self._forest[a].discard(b)
            self._forest[b].discard(a)
            ends[max(a, b)] -= 1
        self._forest[i].add(k)
        self._forest[k].add(i)
        ends[k] += 1

    def _path(self, start: int, goal: int) -> list[int] | None:
        came = {start: start}
        stack = [start]
        while stack:
            here = stack.pop()
            if here == goal:
                path = [here]
                while path[-1] != start:
                    path.append(came[path[-1]])
                return path
            for there in self._forest[here]:
                if there not in came:
                    came[there] = here
                    stack.append(there)
        return None


class Downsets:
    """All sets closed under predecessors, as bit masks."""

    def __init__(self, costs: Costs, *, connected: bool, upper: int) -> None:
        self._costs = costs
        self._connected = connected
        groups = costs.groups
        self._near = [sum(1 << n for n in near) for near in groups.neighbors]
        self.sets = self._enumerate()
        self.states = len(self.sets)
        self._compute = [_sum(s, [a + b for a, b in zip(costs.compute, costs.owner, strict=True)]) for s in self.sets]
        self._static = [_sum(s, costs.static) for s in self.sets]
        self._kept = [_sum(s, costs.activation) for s in self.sets]
        tensors = [
            (1 << t.producer, sum(1 << c for c in t.consumers), transfer, t.bytes)
            for t, transfer in zip(groups.tensors, costs.transfer, strict=True)
        ]
        self._crossing = [[t for t in tensors if t[0] & s and t[1] & ~s] for s in self.sets]
        self._rows = self._all_rows(upper) if self.states else []

    @property
    def complete(self) -> bool:
        """Whether all states and steps were enumerated, because there were few enough."""
        return bool(self._rows)

    def row(self, state: int, limit: int) -> Row:
        """Return the partitions that begin at a set of groups, as `Lattice.row`.

        Returns:
            One entry for each possible end.
        """
        return self._rows[state]

    def assignment(self, walk: Sequence[int]) -> list[int]:
        """Return the partition per group, as `Lattice.assignment`."""
        parts = [0] * len(self._costs.groups)
        for part in range(len(walk) - 1):
            for group in _bits(self.sets[walk[part + 1]] & ~self.sets[walk[part]]):
                parts[group] = part
        return parts

    def _enumerate(self) -> list[int]:
        groups = self._costs.groups
        needs = [sum(1 << p for p in before) for before in groups.predecessors]
        seen, level = {0}, [0]
        while level:
            following: set[int] = set()
            for done in level:
                for group in self._ready(done, needs):
                    following.add(done | 1 << group)
            seen |= following
            if len(seen) > MOST_STATES:
                return []
            level = sorted(following)
        return sorted(seen, key=lambda s: (s.bit_count(), s))

    @staticmethod
    def _ready(done: int, needs: list[int]) -> list[int]:
        return [g for g, need in enumerate(needs) if not done >> g & 1 and not need & ~done]

    def _all_rows(self, upper: int) -> list[Row]:
        speed = self._costs.options.optimize == "speed"
        fewest = min(self._costs.alive)
        load = self._compute if speed else [a + fewest * b for a, b in zip(self._static, self._kept, strict=True)]
        rows: list[Row] = []
        steps = 0
        for i, begin in enumerate(self.sets):
            entries = []
            for j in range(i + 1, self.states):
                end = self.sets[j]
                if begin & ~end or load[j] - load[i] > upper:
                    continue
                inside = end & ~begin
                if self._connected and not self._is_whole(inside):
                    continue
                entries.append((j, *self._step(i, j, inside)))
            steps += len(entries)
            if steps > MOST_STEPS:
                return []
            columns = np.array(entries, np.int64).reshape(-1, 5).T
            rows.append(Row(*columns))
        return rows

    def _step(self, i: int, j: int, inside: int) -> tuple[int, int, int, int]:
        communication = received = 0
        for _, uses, transfer, size in self._crossing[i]:
            if uses & inside:
                communication += transfer
                received += size
        for made, _, transfer, _ in self._crossing[j]:
            if made & inside:
                communication += transfer
        time = self._compute[j] - self._compute[i] + communication
        return time, self._static[j] - self._static[i], self._kept[j] - self._kept[i] + received, communication

    def _is_whole(self, inside: int) -> bool:
        reached = front = inside & -inside
        while front:
            near = 0
            for group in _bits(front):
                near |= self._near[group]
            front = near & inside & ~reached
            reached |= front
        return reached == inside


def _prefix(values: Iterable[int]) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(list(values), np.int64))])


def _take(row: Row, mask: np.ndarray) -> Row:
    return Row(row.targets[mask], row.time[mask], row.static[mask], row.kept[mask], row.communication[mask])


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _sum(mask: int, values: Sequence[int]) -> int:
    return sum(values[i] for i in _bits(mask))
