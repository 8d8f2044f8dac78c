"""Groups of units that must stay together, and the order between groups.

Units that share a variable or a colocation group become one *group*. Joining them can close a cycle (a tied embedding
at both ends of a model). `cut` compares two solutions:

- **collapse**: every cycle (strongly connected component) becomes one group, so that a microbatch visits each partition
  once. Simple, but a tied embedding absorbs all units between its two uses.
- **revisit**: groups stay small, and a tensor may flow back to an earlier partition, which is then visited twice. The
  group has the position of its first (or last) unit; edges against that order are *return edges*, which cost messages
  like all others but do not constrain the order.

Complexity: linear in units and edges, with a logarithm for the ordering.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph


class Anchor(StrEnum):
    """Position of a group of several units in the order of the pipeline."""

    COLLAPSE = "collapse"
    """Cycles are collapsed, so no group has a choice of positions."""
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class GroupTensor:
    """A tensor that one group produces and others consume."""

    producer: int
    consumers: tuple[int, ...]
    """Groups in ascending order, without the producer."""
    bytes: int


@dataclass(frozen=True)
class Groups:
    """The graph of groups, numbered in a topological order of their forward edges."""

    graph: UnitGraph
    members: tuple[tuple[int, ...], ...]
    """Per group, the indices of its units in the graph."""
    of: tuple[int, ...]
    """Per unit, its group."""
    tensors: tuple[GroupTensor, ...]
    predecessors: tuple[tuple[int, ...], ...]
    """Per group, the sources of its forward edges; none of them may be on a later partition than the group."""
    successors: tuple[tuple[int, ...], ...]
    neighbors: tuple[tuple[int, ...], ...]
    """Per group, the groups that share an edge of either direction with it, return edges included."""
    revisits: bool
    """Whether there are return edges."""

    def __len__(self) -> int:
        return len(self.members)

    def spread(self, assignment: Iterable[int]) -> tuple[int, ...]:
        """Return the partition per unit, given the partition per group."""
        partitions = tuple(assignment)
        return tuple(partitions[group] for group in self.of)

    @property
    def is_chain(self) -> bool:
        """Return whether each group sends tensors to the next group only."""
        following = (((i + 1,) if i + 1 < len(self) else ()) for i in range(len(self)))
        return not self.revisits and all(map(tuple.__eq__, self.successors, following))


def group(graph: UnitGraph, *, anchor: Anchor = Anchor.COLLAPSE) -> Groups:
    """Join units that must stay together.

    Args:
        anchor: How to resolve cycles.
    """
    joined = _joined(graph)
    if anchor is Anchor.COLLAPSE:
        joined = _without_cycles(graph, joined)
    return _groups(graph, joined, last=anchor is Anchor.LAST)


def apart(graph: UnitGraph) -> Groups:
    """Return a separate group for every unit, to evaluate assignments that were made by hand."""
    return _groups(graph, list(range(len(graph.units))), last=False)


def _joined(graph: UnitGraph) -> list[int]:
    """Return per unit the first unit of its group."""
    root = list(range(len(graph.units)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    first: dict[tuple[str, str], int] = {}
    for i, unit in enumerate(graph.units):
        bonds = [("variable", name) for name in unit.variables] + [("group", name) for name in unit.colocation]
        for bond in bonds:
            a, b = find(first.setdefault(bond, i)), find(i)
            root[max(a, b)] = min(a, b)
    return [find(i) for i in range(len(root))]


def _without_cycles(graph: UnitGraph, joined: list[int]) -> list[int]:
    """Join strongly connected components."""
    targets: dict[int, list[int]] = {root: [] for root in joined}
    for edge in graph.edges:
        source, target = joined[graph.index[edge.source]], joined[graph.index[edge.target]]
        if source != target:
            targets[source].append(target)
    component = _Components(targets).of
    return [component[root] for root in joined]


class _Components:
    """The strongly connected components of a graph, by Tarjan's algorithm with a stack instead of recursion."""

    def __init__(self, targets: Mapping[int, Sequence[int]]) -> None:
        self.of: dict[int, int] = {}
        """Node -> the smallest node of its component."""
        self._targets = targets
        self._number: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._open: list[int] = []
        for start in targets:
            if start not in self._number:
                self._walk(start)

    def _walk(self, start: int) -> None:
        walk = [(start, self._enter(start))]
        while walk:
            node, rest = walk[-1]
            fresh = self._next_fresh(node, rest)
            if fresh is not None:
                walk.append((fresh, self._enter(fresh)))
            else:
                walk.pop()
                self._leave(node, walk[-1][0] if walk else node)

    def _enter(self, node: int) -> Iterator[int]:
        self._number[node] = self._low[node] = len(self._number)
        self._open.append(node)
        return iter(self._targets[node])

    def _next_fresh(self, node: int, rest: Iterator[int]) -> int | None:
        for target in rest:
            if target not in self._number:
                return target
            if target not in self.of:
                self._low[node] = min(self._low[node], self._number[target])
        return None

    def _leave(self, node: int, above: int) -> None:
        self._low[above] = min(self._low[above], self._low[node])
        if self._low[node] == self._number[node]:
            begin = self._open.index(node)
            self.of.update(dict.fromkeys(self._open[begin:], min(self._open[begin:])))
            del self._open[begin:]


def _groups(graph: UnitGraph, joined: list[int], *, last: bool) -> Groups:
    units_of: dict[int, list[int]] = {}
    for i, root in enumerate(joined):
        units_of.setdefault(root, []).append(i)
    place = {root: units[-1 if last else 0] for root, units in units_of.items()}
    uses: dict[tuple[int, str], tuple[set[int], int]] = {}
    for edge in graph.edges:
        source, target = graph.index[edge.source], joined[graph.index[edge.target]]
        consumers, size = uses.get((source, edge.tensor), (set(), 0))
        if target != joined[source]:
            consumers.add(target)
        uses[source, edge.tensor] = consumers, max(size, edge.bytes)
    links = {(joined[source], target) for (source, _), (targets, _) in uses.items() for target in targets}
    ordered = topological(place, links)
    revisits = len(ordered) < len(place)
    if revisits:
        ordered = sorted(place, key=place.__getitem__)
    number = {root: i for i, root in enumerate(ordered)}
    forward = sorted({(number[a], number[b]) for a, b in links if number[a] < number[b]})
    predecessors: list[list[int]] = [[] for _ in ordered]
    successors: list[list[int]] = [[] for _ in ordered]
    neighbors: list[set[int]] = [set() for _ in ordered]
    for a, b in forward:
        successors[a].append(b)
        predecessors[b].append(a)
    for a, b in links:
        neighbors[number[a]].add(number[b])
        neighbors[number[b]].add(number[a])
    return Groups(
        graph=graph,
        members=tuple(tuple(units_of[root]) for root in ordered),
        of=tuple(number[root] for root in joined),
        tensors=tuple(
            GroupTensor(number[joined[source]], tuple(sorted(number[target] for target in targets)), size)
            for (source, _), (targets, size) in sorted(uses.items())
            if targets
        ),
        predecessors=tuple(map(tuple, predecessors)),
        successors=tuple(map(tuple, successors)),
        neighbors=tuple(tuple(sorted(near)) for near in neighbors),
        revisits=revisits,
    )


def topological(place: dict[int, int], links: set[tuple[int, int]]) -> list[int]:
    """Return Kahn's topological order, earliest place first, without nodes on or after a cycle.

    Args:
        place: Node -> its place; of the nodes that may come next, the one with the first place does.
        links: Pairs of a node and one that comes after it.
    """
    targets: dict[int, list[int]] = {}
    waiting = dict.fromkeys(place, 0)
    for source, target in links:
        targets.setdefault(source, []).append(target)
        waiting[target] += 1
    ready = [(place[root], root) for root, inputs in waiting.items() if not inputs]
    heapq.heapify(ready)
    order = []
    while ready:
        _, root = heapq.heappop(ready)
        order.append(root)
        for target in targets.get(root, ()):
            waiting[target] -= 1
            if not waiting[target]:
                heapq.heappush(ready, (place[target], target))
    return order
