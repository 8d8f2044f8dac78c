"""Assigns each op to the partition that computes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.marks import REPLICATED

ALL = -1
"""The owner of replicated ops, which every rank computes."""


@dataclass(frozen=True)
class PartitionAssignment:
    """The partitions of the nodes and resources of a graph."""

    owners: tuple[int, ...]
    """Partition of each node, or `ALL`."""
    handles: dict[Output, int]
    """Resource handle -> the partition that holds the resource, or `ALL`."""
    users: dict[Output, frozenset[int]]
    """Resource handle -> the partitions whose layers use the resource; several if it is shared."""


def assign(
    nodes: Sequence[Node],
    *,
    units: Mapping[str, str],
    partitions: Mapping[str, int],
    gradients: Mapping[str, Output],
    placed: Mapping[Output, int] | None = None,
) -> PartitionAssignment:
    """Assign every node by the first rule that applies.

    1. Placeholders and constants are replicated.
    2. An op on a resource: the partition of the resource, which is that of its first user in the model.
    3. The gradient of a variable: the partition of the variable.
    4. An op created in the model, or by the gradient of such an op: the partition of its unit.
    5. Any other op: the partition of its inputs; replicated if they are in several partitions or replicated.

    Args:
        nodes: The nodes in topological order.
        units: Op name -> unit, as recorded by the trace.
        partitions: Unit -> partition.
        gradients: Name of an op that outputs a variable's gradient -> the handle of the variable.
        placed: Handles of variables that an earlier step assigned to a partition.

    Raises:
        SMPPartitionError: If one op uses variables of several partitions.
    """
    marked = [_marked(units.get(node.name), partitions) for node in nodes]
    roots = _roots(nodes)
    handles, users = _place_handles(nodes, marked, roots, placed or {})
    owners: list[int] = []
    for node in nodes:
        owners.append(_owner(node, owners, marked[node.index], handles, roots, gradients))
    return PartitionAssignment(tuple(owners), handles, users)


def _marked(unit: str | None, partitions: Mapping[str, int]) -> int | None:
    if unit is None:
        return None
    return ALL if unit == REPLICATED else partitions.get(unit)


def _roots(nodes: Sequence[Node]) -> dict[Output, Output]:
    """Return handle -> the placeholder from which it comes, through ops that only forward it."""
    roots: dict[Output, Output] = {}
    for node in nodes:
        for handle in node.handles:
            roots.setdefault(handle, handle)
        if node.type == "Identity" and node.handles:
            roots[(node.index, 0)] = roots[node.handles[0]]
    return roots


def _place_handles(
    nodes: Sequence[Node],
    marked: Sequence[int | None],
    roots: Mapping[Output, Output],
    placed: Mapping[Output, int],
) -> tuple[dict[Output, int], dict[Output, frozenset[int]]]:
    handles: dict[Output, int] = dict(placed)
    users: dict[Output, set[int]] = {}
    for node in nodes:
        for handle in node.handles:
            root = roots[handle]
            users.setdefault(root, set())
            where = marked[node.index]
            if where is not None and where != ALL:
                handles.setdefault(root, where)
                users[root].add(where)
    for root in users:
        handles.setdefault(root, ALL)
    return handles, {root: frozenset(who) for root, who in users.items()}


def _owner(
    node: Node,
    owners: Sequence[int],
    marked: int | None,
    handles: Mapping[Output, int],
    roots: Mapping[Output, Output],
    gradients: Mapping[str, Output],
) -> int:
    if node.type == "Placeholder":
        return ALL
    if node.handles:
        return _owner_of_handles(node, handles, roots, marked)
    if node.name in gradients:
        where = handles.get(roots.get(gradients[node.name], gradients[node.name]), ALL)
        return where if where != ALL else _owner_of_inputs(node, owners)
    if node.type == "Const":
        return ALL
    if marked is not None:
        return marked
    return _owner_of_inputs(node, owners)


def _owner_of_handles(
    node: Node, handles: Mapping[Output, int], roots: Mapping[Output, Output], marked: int | None
) -> int:
    where = {handles[roots[handle]] for handle in node.handles} - {ALL}
    if len(where) > 1:
        raise SMPPartitionError(
            f"the op {node.name} ({node.type}) uses variables of the partitions {sorted(where)} at once; a loop, a "
            "conditional or a function is placed as a whole: put everything it uses into one partition"
        )
    if where:
        return where.pop()
    return ALL if marked is None else marked


def _owner_of_inputs(node: Node, owners: Sequence[int]) -> int:
    where = {owners[source] for source, _ in node.inputs} - {ALL}
    if len(where) > 1:
        return min(where) if node.type == "AddN" else ALL
    return where.pop() if where else ALL
