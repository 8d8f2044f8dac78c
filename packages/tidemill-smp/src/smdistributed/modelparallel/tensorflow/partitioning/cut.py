"""Automatic partitioning: balanced partitions with little communication.

There are two objectives, time and bytes, which may conflict: embeddings dominate bytes, convolutions dominate time.
`optimize="speed"` minimizes the time of the slowest partition, `"memory"` the bytes of the largest. Among all
cuts within a small slack of that minimum, the other objective decides, then the bytes sent. So the cut does not lose
time for the last kilobyte, nor memory for the last microsecond.

Steps: group units that must stay together (`groups`), cut several linear orders optimally (`lattice.Linear`), cut the
graph itself optimally if it has few closed sets (`lattice.Downsets`), refine by local search (`search`), and return the
best. Chains are optimal after the first step. The result is a pure function of graph and options.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.partitioning.bound import Proven, prove
from smdistributed.modelparallel.tensorflow.partitioning.cost import Costs, CutOptions, Evaluation, evaluate
from smdistributed.modelparallel.tensorflow.partitioning.groups import Anchor, Groups, group
from smdistributed.modelparallel.tensorflow.partitioning.lattice import (
    INFINITE,
    Downsets,
    Linear,
    best_walk,
    slackened,
)
from smdistributed.modelparallel.tensorflow.partitioning.orders import contraction, orders
from smdistributed.modelparallel.tensorflow.partitioning.search import SearchPosition, first_key, refine, second_key
from smdistributed.modelparallel.tensorflow.partitioning.units import UnitGraph

REVISIT_GAIN = 0.10
"""Least relative gain for which a microbatch may visit a partition twice: such a pipeline fills more slowly than the
time of its slowest partition predicts."""
MANY_GROUPS = 600
GROUPS_FOR_DOWNSETS = 300
REFINED = 3
"""Number of starts of the local search; one if there are many groups."""


@dataclass(frozen=True)
class PartitionCut:
    """The result of automatic partitioning."""

    graph: UnitGraph
    options: CutOptions
    assignment: tuple[int, ...]
    """Partition per unit, numbered in the order of the pipeline."""
    exact: bool
    """Whether the cut is proven optimal for its groups and costs: always for chains, and for most other graphs."""
    revisits: bool
    """Whether a microbatch visits some partition more than once."""

    @property
    def partitions(self) -> dict[str, int]:
        """Return the partition of each unit by name, in the order of the graph."""
        return {unit.name: part for unit, part in zip(self.graph.units, self.assignment, strict=True)}

    @property
    def evaluation(self) -> Evaluation:
        """Return the costs of the cut."""
        return evaluate(self.graph, self.assignment, self.options)


@dataclass(frozen=True, order=True)
class _Candidate:
    second: int
    communication: int
    first: int
    assignment: tuple[int, ...]
    exact: bool = field(default=False, compare=False)


def cut(graph: UnitGraph, options: CutOptions) -> PartitionCut:
    """Assign every unit to a partition.

    Args:
        graph: The units with their costs, equal on all ranks.
        options: Number of partitions, and the objective.

    Raises:
        SMPPartitionError: If there are fewer separable units than partitions.
    """
    collapsed = group(graph)
    found = [(collapsed, _solve(collapsed, options))]
    for anchor in (Anchor.FIRST, Anchor.LAST):
        groups = group(graph, anchor=anchor)
        if not groups.revisits:
            break
        found.append((groups, _solve(groups, options)))
    best: tuple[Groups, _Candidate] | None = None
    for groups, candidate in found:
        if candidate is None:
            continue
        gain = REVISIT_GAIN if best and groups.revisits and not best[0].revisits else 0
        if best is None or candidate.first < best[1].first * (1 - gain):
            best = groups, candidate
    if best is None:
        raise _too_few(found[-1][0], options)
    groups, candidate = best
    return PartitionCut(
        graph=graph,
        options=options,
        assignment=groups.spread(candidate.assignment),
        exact=candidate.exact,
        revisits=groups.revisits and _has_backward_edge(groups, candidate.assignment),
    )


def _solve(groups: Groups, options: CutOptions) -> _Candidate | None:
    if len(groups) < options.partitions:
        return None
    costs = Costs(groups, options)
    connected = options.contiguous and _is_connected(groups)
    found: dict[tuple[int, ...], None] = {}
    first = INFINITE
    for order in orders(groups, few=len(groups) > MANY_GROUPS):
        lattice = Linear(costs, order, connected=connected and not groups.is_chain)
        walk = best_walk(lattice, costs, upper=slackened(first, options.slack))
        if walk is not None:
            first = min(first, walk.first)
            found |= dict.fromkeys((walk.least, walk.assignment))
    if groups.is_chain or options.partitions == 1:
        return replace(_choose(costs, list(found)), exact=True)
    if not found and (start := contraction(groups, costs.compute, options.partitions)) is not None:
        found[start] = None
    if found and len(groups) <= GROUPS_FOR_DOWNSETS:
        proven = _exact_cut(costs, list(found), connected=connected)
        if proven is not None:
            found |= dict.fromkeys((proven.least, proven.assignment))
            if proven.exact and not groups.revisits:
                return replace(_choose(costs, list(found)), exact=True)
    return _refined(costs, list(found), connected=connected) if found else None


def _exact_cut(costs: Costs, found: list[tuple[int, ...]], *, connected: bool) -> Proven | None:
    """Return the best cut of the graph itself; None if the graph has too many closed sets to enumerate."""
    start = min((_candidate(costs, each) for each in found), key=lambda c: (c.first, c))
    upper = slackened(start.first, costs.options.slack)
    lattice = Downsets(costs, connected=connected, upper=upper)
    return prove(lattice, costs, start.assignment, bound=start.first) if lattice.complete else None


def _refined(costs: Costs, found: list[tuple[int, ...]], *, connected: bool) -> _Candidate:
    """Improve the first objective by local search and then, within its slack, the second."""
    starts = sorted((_candidate(costs, each) for each in found), key=lambda c: (c.first, c))
    most = REFINED if len(costs.groups) <= MANY_GROUPS else 1
    for start in starts[:most]:
        position = SearchPosition(costs, start.assignment, connected=connected)
        refine(position, first_key)
        found.append(tuple(position.parts))
    bound = _bound(costs, found)
    close = sorted(c for c in (_candidate(costs, each) for each in dict.fromkeys(found)) if c.first <= bound)
    for start in close[:most]:
        position = SearchPosition(costs, start.assignment, connected=connected)
        refine(position, second_key(bound))
        found.append(tuple(position.parts))
    return _choose(costs, found)


def _choose(costs: Costs, found: list[tuple[int, ...]]) -> _Candidate:
    bound = _bound(costs, found)
    return min(c for c in (_candidate(costs, each) for each in found) if c.first <= bound)


def _bound(costs: Costs, found: list[tuple[int, ...]]) -> int:
    return slackened(min(_candidate(costs, each).first for each in found), costs.options.slack)


def _candidate(costs: Costs, assignment: tuple[int, ...]) -> _Candidate:
    first, second, communication = costs.measures(assignment)
    return _Candidate(second, communication, first, assignment)


def _is_connected(groups: Groups) -> bool:
    reached, stack = {0}, [0]
    while stack:
        for there in groups.neighbors[stack.pop()]:
            if there not in reached:
                reached.add(there)
                stack.append(there)
    return len(reached) == len(groups)


def _has_backward_edge(groups: Groups, assignment: tuple[int, ...]) -> bool:
    return any(
        assignment[consumer] < assignment[tensor.producer] for tensor in groups.tensors for consumer in tensor.consumers
    )


def _too_few(groups: Groups, options: CutOptions) -> SMPPartitionError:
    units, joined = len(groups.graph.units), len(groups)
    message = f"{options.partitions} partitions were requested, but the model has {units} units"
    if joined < units:
        message += f", of which only {joined} can be separated"
        names = [groups.graph.units[i] for members in groups.members if len(members) > 1 for i in members]
        shared = Counter(bond for unit in names for bond in (*unit.variables, *unit.colocation))
        bonds = sorted(name for name, uses in shared.items() if uses > 1)[:3]
        if bonds:
            message += f" (units are tied together by {', '.join(bonds)})"
    return SMPPartitionError(f"{message}: lower `partitions` to {max(joined, 1)} or less, or use smaller layers")
