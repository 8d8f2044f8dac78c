"""Cuts the graph into segments: the ops of one microbatch that a rank can compute between two receives."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from smdistributed.modelparallel.tensorflow.engine.assign import ALL
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward, nodes_to_recompute


@dataclass(frozen=True, order=True)
class SegmentMessage:
    """A tensor sent from the partition that computes it to another partition."""

    output: Output
    source: int
    target: int


@dataclass(frozen=True)
class Segment:
    """The nodes of one partition at one level."""

    partition: int
    level: int
    nodes: tuple[int, ...]
    """Nodes in topological order, including copies of constants and of recomputed nodes."""
    inputs: tuple[Output, ...]
    """Tensors from outside: from an earlier segment of this partition, received, or fed."""
    outputs: tuple[Output, ...]
    """Tensors used outside: by later segments of this partition, other partitions, or the caller."""
    work: float
    kind: str = "forward"
    """`forward`, `backward`, or `forward and backward`."""
    is_recomputed: bool = False
    """Whether the segment recomputes parts of an earlier segment."""


@dataclass(frozen=True)
class SegmentCut:
    """The segments of all partitions, and the messages between them."""

    segments: tuple[Segment, ...]
    messages: tuple[SegmentMessage, ...]
    """Messages, sorted: their indices are their numbers, the same on all ranks."""
    levels: dict[tuple[int, int], int] = field(repr=False)
    """(partition, node) -> level of the segment that computes it there."""

    def of(self, partition: int) -> dict[int, Segment]:
        """Return the segments of one partition by level.

        Args:
            partition: From 0.
        """
        return {segment.level: segment for segment in self.segments if segment.partition == partition}


def cut(
    nodes: Sequence[Node],
    owners: Sequence[int],
    *,
    num_partitions: int,
    results: Sequence[tuple[Output, int]],
    effects: Sequence[int],
    recompute: Set[int] = frozenset(),
) -> SegmentCut:
    """Cut the graph into segments.

    The level of a node on a partition is the highest level of its inputs, plus one for inputs that another partition
    computes. Nodes with the same partition and level form a segment. The result has no cycles by construction, even if
    the model alternates between partitions; forward pass, loss and backward pass of the last partition become one
    segment.

    Args:
        nodes: The nodes in topological order.
        owners: Partition of each node, or `ALL`.
        results: Tensors that the caller needs, each with a partition or `ALL`.
        effects: Nodes that must run for their side effects.
        recompute: Partitions whose backward segments recompute forward tensors instead of keeping them.
    """
    cutter = _Cutter(nodes, owners, num_partitions, recompute)
    for output, where in results:
        for partition in cutter.places(where):
            cutter.want(partition, output)
    for node in effects:
        for partition in cutter.places(owners[node]):
            cutter.need(partition, node)
    cutter.set_levels()
    cutter.sink()
    return SegmentCut(tuple(cutter.segments()), tuple(sorted(cutter.messages)), cutter.levels)


class _Cutter:
    def __init__(self, nodes: Sequence[Node], owners: Sequence[int], num_partitions: int, recompute: Set[int]) -> None:
        self.nodes = nodes
        self.recompute = recompute
        self.owners = owners
        self.partitions = range(num_partitions)
        self.needed: list[set[int]] = [set() for _ in self.partitions]
        self.wanted: list[set[Output]] = [set() for _ in self.partitions]
        self.messages: set[SegmentMessage] = set()
        self.levels: dict[tuple[int, int], int] = {}
        self.floating = _floating(nodes, owners)
        self.users: list[list[int]] = [[] for _ in nodes]
        for node in nodes:
            for source in {*(source for source, _ in node.inputs), *node.controls}:
                self.users[source].append(node.index)

    def places(self, owner: int) -> Iterable[int]:
        return self.partitions if owner == ALL else (owner,)

    def is_here(self, node: int, partition: int) -> bool:
        return self.owners[node] in (ALL, partition)

    def want(self, partition: int, output: Output) -> None:
        self.wanted[partition].add(output)
        self.need(*self._source(partition, output))

    def need(self, partition: int, node: int) -> None:
        """Make `partition` compute `node` and everything that the node depends on."""
        work = [(partition, node)]
        while work:
            where, index = work.pop()
            if index in self.needed[where]:
                continue
            self.needed[where].add(index)
            work.extend(self._source(where, output) for output in self.nodes[index].inputs)
            # Only messages order two partitions: control edges between them are dropped.
            work.extend((where, control) for control in self.nodes[index].controls if self.is_here(control, where))

    def _source(self, partition: int, output: Output) -> tuple[int, int]:
        if self.is_here(output[0], partition):
            return partition, output[0]
        self.messages.add(SegmentMessage(output, self.owners[output[0]], partition))
        return self.owners[output[0]], output[0]

    def set_levels(self) -> None:
        for node in self.nodes:
            for partition in self.partitions:
                if node.index in self.needed[partition]:
                    self.levels[partition, node.index] = self._level(partition, node)

    def _level(self, partition: int, node: Node) -> int:
        level = 0
        for source, _ in node.inputs:
            away = not self.is_here(source, partition)
            level = max(level, self.levels[self.owners[source] if away else partition, source] + away)
        return max([level, *(self.levels.get((partition, control), 0) for control in node.controls)])

    def sink(self) -> None:
        """Move nodes that are used only later to later segments, which avoids calls of nearly empty segments."""
        fixed = [{message.output[0] for message in self.messages if message.source == p} for p in self.partitions]
        for partition in self.partitions:
            fixed[partition] |= {index for index, _ in self.wanted[partition]}
            for node in reversed(self.nodes):
                if node.index not in self.needed[partition] or node.index in fixed[partition]:
                    continue
                if node.stateful and node.type != "ReadVariableOp":
                    continue
                used = [
                    self.levels[partition, user] for user in self.users[node.index] if user in self.needed[partition]
                ]
                if used:
                    self.levels[partition, node.index] = min(used)

    def segments(self) -> Iterator[Segment]:
        for partition in self.partitions:
            groups: dict[int, set[int]] = {}
            for index in self.needed[partition]:
                if index not in self.floating and self.nodes[index].type != "Placeholder":
                    groups.setdefault(self.levels[partition, index], set()).add(index)
            constants = {index for index, _ in self.wanted[partition]} & self.floating
            if constants:
                groups.setdefault(max(groups, default=0), set()).update(constants)
            members = {level: self._with_constants(group) for level, group in groups.items()}
            recomputed = self._recomputed(members) if partition in self.recompute else {}
            members |= {level: self._with_constants(members[level] | more) for level, more in recomputed.items()}
            for level in sorted(members):
                yield self._segment(partition, level, members, recomputed.get(level, frozenset()))

    def _recomputed(self, members: dict[int, set[int]]) -> dict[int, frozenset[int]]:
        """Return the nodes that each level of a partition recomputes."""
        found = {}
        for level, group in members.items():
            earlier = {
                index: before
                for before, others in members.items()
                if before < level
                for index in others - self.floating - group
            }
            found[level] = frozenset(nodes_to_recompute(self.nodes, group, earlier))
        return {level: more for level, more in found.items() if more}

    def _with_constants(self, group: set[int]) -> set[int]:
        members, work = set(group), list(group)
        while work:
            for source, _ in self.nodes[work.pop()].inputs:
                if source in self.floating and source not in members:
                    members.add(source)
                    work.append(source)
        return members

    def _segment(self, partition: int, level: int, members: dict[int, set[int]], recomputed: frozenset[int]) -> Segment:
        mine = members[level]
        inputs = {output for index in mine for output in self.nodes[index].inputs if output[0] not in mine}
        asked = {message.output for message in self.messages if message.source == partition}
        asked |= self.wanted[partition]
        for later, others in members.items():
            if later > level:
                asked |= {output for index in others for output in self.nodes[index].inputs if output[0] not in others}
        return Segment(
            partition,
            level,
            tuple(sorted(mine)),
            tuple(sorted(inputs)),
            tuple(sorted(output for output in asked if output[0] in mine - recomputed)),
            sum(self.nodes[index].work for index in mine),
            self._kind(mine - recomputed - self.floating),
            bool(recomputed),
        )

    def _kind(self, members: Set[int]) -> str:
        # Ignore replicated nodes, such as a loss. Weigh the others by work, so that cheap nodes hardly count, such as a
        # shape of the forward pass that was moved to the backward pass.
        members = {index for index in members if self.owners[index] != ALL} or members
        backward = sum(self.nodes[index].work for index in members if is_backward(self.nodes[index]))
        forward = sum(self.nodes[index].work for index in members) - backward
        if backward <= 0.02 * forward:
            return "forward"
        return "backward" if forward <= 0.02 * backward else "forward and backward"


def _floating(nodes: Sequence[Node], owners: Sequence[int]) -> frozenset[int]:
    """Return constants, and nodes computed from constants only, which are copied into each segment that uses them."""
    floating: set[int] = set()
    for node in nodes:
        if node.stateful or node.controls or owners[node.index] != ALL or node.type == "Placeholder":
            continue
        if all(source in floating for source, _ in node.inputs):
            floating.add(node.index)
    return frozenset(floating)
