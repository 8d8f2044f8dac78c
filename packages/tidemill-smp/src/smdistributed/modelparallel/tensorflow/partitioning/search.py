"""Local search that improves a cut by moving single groups.

Passes follow Fiduccia and Mattheyses: each step makes the best legal move, even if it worsens the cut, and locks the
moved group; at its end the pass is rolled back to its best position. Moves keep every forward edge pointing onward (so
that no partition waits for a later one), every partition non-empty and, if required, connected.

A move costs O(uses of the group's tensors), a step O(groups + moves x partitions). Wherever order could matter, lists
are iterated and not sets.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

from smdistributed.modelparallel.tensorflow.partitioning.cost import Costs

Key = tuple[int, ...]
PASSES = 12
GROUPS_FOR_SWAPS = 64
LOOKS = 150_000
"""Largest number of groups examined in one search, over all steps: unlike a time limit, equal on every machine."""


class SearchPosition:
    """An assignment and its objectives, updated incrementally with each move."""

    def __init__(self, costs: Costs, assignment: Sequence[int], *, connected: bool) -> None:
        self.costs = costs
        self.connected = connected
        self.parts = list(assignment)
        self._of: list[list[int]] = [[] for _ in self.parts]
        for i, tensor in enumerate(costs.groups.tensors):
            for group in (tensor.producer, *tensor.consumers):
                self._of[group].append(i)
        parts = costs.partitions
        self.time, self._static, self._kept = list(costs.base), [0] * parts, [0] * parts
        self.count = [0] * parts
        self.communication = 0
        for group, part in enumerate(self.parts):
            self._put(group, part, 1)
        for i in range(len(costs.groups.tensors)):
            self._count_transfer(i, 1)

    @property
    def bytes(self) -> list[int]:
        """Return the bytes of each partition."""
        return [a + b * n for a, b, n in zip(self._static, self._kept, self.costs.alive, strict=True)]

    @property
    def measures(self) -> tuple[list[int], list[int]]:
        """Return the first and the second objective, per partition."""
        return (self.bytes, self.time) if self.costs.options.optimize == "memory" else (self.time, self.bytes)

    def move(self, group: int, part: int) -> None:
        """Move a group to another partition.

        Args:
            group: Index of the group.
            part: Index of the partition.
        """
        for i in self._of[group]:
            self._count_transfer(i, -1)
        self._put(group, self.parts[group], -1)
        self.parts[group] = part
        self._put(group, part, 1)
        for i in self._of[group]:
            self._count_transfer(i, 1)

    def moves(self, group: int) -> list[int]:
        """Return the partitions to which a group may move, without checking that its old partition stays connected.

        Args:
            group: Index of the group.
        """
        placed, parts, groups = self.parts[group], self.parts, self.costs.groups
        if self.count[placed] == 1:
            return []
        lowest = max((parts[p] for p in groups.predecessors[group]), default=0)
        highest = min((parts[s] for s in groups.successors[group]), default=self.costs.partitions - 1)
        if lowest == highest:
            return []
        if not self.connected:
            return [part for part in range(lowest, highest + 1) if part != placed]
        near = {parts[n] for n in groups.neighbors[group]}
        return sorted(part for part in near if lowest <= part <= highest and part != placed)

    def stays_whole(self, group: int) -> bool:
        """Return whether a group's partition remains connected without the group.

        Args:
            group: Index of the group.
        """
        if not self.connected:
            return True
        placed = self.parts[group]
        start = next((n for n in self.costs.groups.neighbors[group] if self.parts[n] == placed), None)
        return start is not None and self._connected_to(start, {group}) == self.count[placed]

    def is_legal(self, group: int) -> bool:
        """Return whether a group that was moved without checks is at a legal place, in a connected partition.

        Args:
            group: Index of the group.
        """
        groups, placed = self.costs.groups, self.parts[group]
        before = all(self.parts[p] <= placed for p in groups.predecessors[group])
        after = all(self.parts[s] >= placed for s in groups.successors[group])
        return before and after and (not self.connected or self._connected_to(group, set()) == self.count[placed])

    def _connected_to(self, start: int, reached: set[int]) -> int:
        """Return the number of groups of its partition reachable from a group, including itself and `reached`."""
        placed, near = self.parts[start], self.costs.groups.neighbors
        reached.add(start)
        stack = [start]
        while stack:
            for there in near[stack.pop()]:
                if there not in reached and self.parts[there] == placed:
                    reached.add(there)
                    stack.append(there)
        return len(reached)

    def _put(self, group: int, part: int, sign: int) -> None:
        costs = self.costs
        self.time[part] += sign * (costs.compute[group] + costs.owner[group])
        self._static[part] += sign * costs.static[group]
        self._kept[part] += sign * costs.activation[group]
        self.count[part] += sign

    def _count_transfer(self, i: int, sign: int) -> None:
        tensor, transfer = self.costs.groups.tensors[i], sign * self.costs.transfer[i]
        placed = self.parts[tensor.producer]
        for part in {self.parts[consumer] for consumer in tensor.consumers}:
            if part != placed:
                self.time[placed] += transfer
                self.time[part] += transfer
                self._kept[part] += sign * tensor.bytes
                self.communication += 2 * transfer


def first_key(position: SearchPosition) -> Key:
    """Return the first objective, largest partition first, so that improving only the second largest counts too.

    Args:
        position: An assignment with its costs.

    Returns:
        Smaller is better.
    """
    return (*sorted(position.measures[0], reverse=True), position.communication)


def second_key(bound: int) -> Callable[[SearchPosition], Key]:
    """Return a key that compares by the second objective if the first is within its bound.

    Args:
        bound: Largest first objective that is as good as the best.

    Returns:
        A function; smaller is better.
    """

    def key(position: SearchPosition) -> Key:
        one, two = position.measures
        return (max(0, max(one) - bound), max(two), position.communication, *sorted(two, reverse=True))

    return key


def refine(position: SearchPosition, key: Callable[[SearchPosition], Key]) -> None:
    """Run passes while they improve the position.

    Args:
        position: An assignment with its costs; changed in place.
        key: What is made smaller.
    """
    size = len(position.parts)
    patience = size if size <= 64 else 12
    steps = max(LOOKS // size, 2 * patience)
    for _ in range(PASSES):
        better, made = _pass(position, key, patience, steps)
        steps -= made
        if not better and (size > GROUPS_FOR_SWAPS or not _swap(position, key)):
            return


def _pass(position: SearchPosition, key: Callable[[SearchPosition], Key], patience: int, most: int) -> tuple[bool, int]:
    """Run one pass; return whether the position improved, and the number of steps."""
    start = best = key(position)
    trail: list[tuple[int, int]] = []
    kept = 0
    locked: set[int] = set()
    while len(trail) - kept < patience and len(trail) < most:
        move = _best_move(position, key, locked)
        if move is None:
            break
        reached, group, part = move
        trail.append((group, position.parts[group]))
        position.move(group, part)
        locked.add(group)
        if reached < best:
            best, kept = reached, len(trail)
    for group, part in reversed(trail[kept:]):
        position.move(group, part)
    return best < start, len(trail)


def _swap(position: SearchPosition, key: Callable[[SearchPosition], Key]) -> bool:
    """Exchange the best pair of groups: single moves cannot exchange partitions that have one group each."""
    parts, best = position.parts, (key(position), 0, 0)
    for a, b in combinations(range(len(parts)), 2):
        if parts[a] != parts[b]:
            _exchange(position, a, b)
            reached = key(position)
            if reached < best[0] and position.is_legal(a) and position.is_legal(b):
                best = reached, a, b
            _exchange(position, a, b)
    _exchange(position, best[1], best[2])
    return best[1] != best[2]


def _exchange(position: SearchPosition, a: int, b: int) -> None:
    one, two = position.parts[a], position.parts[b]
    position.move(a, two)
    position.move(b, one)


def _best_move(
    position: SearchPosition, key: Callable[[SearchPosition], Key], locked: set[int]
) -> tuple[Key, int, int] | None:
    found = []
    for group, placed in enumerate(position.parts):
        if group in locked:
            continue
        for part in position.moves(group):
            position.move(group, part)
            found.append((key(position), group, part))
            position.move(group, placed)
    found.sort()
    return next((move for move in found if position.stays_whole(move[1])), None)
