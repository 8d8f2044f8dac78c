"""Decide for each op which partition computes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from smdistributed.modelparallel.backend.exceptions import SMPPartitionError
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.marks import EVERYWHERE

__all__ = ["ALL", "Assignment", "assign"]

ALL = -1
"""The owner of an op that every rank computes for itself."""


@dataclass(frozen=True)
class Assignment:
    """Where everything lives."""

    owners: tuple[int, ...]
    """Partition of each node, or `ALL`."""
    handles: dict[Output, int]
    """Resource handle -> the partition that holds the resource, or `ALL`."""
    users: dict[Output, frozenset[int]]
    """Resource handle -> the partitions whose layers use it: more than one means that it is shared."""


def assign(
    nodes: Sequence[Node],
    *,
    units: Mapping[str, str],
    partitions: Mapping[str, int],
    gradients: Mapping[str, Output],
    settled: Mapping[Output, int] | None = None,
) -> Assignment:
    """Assign every node; the first rule that fits wins.

    1. What the trace takes in, and constants: everywhere.
    2. What touches a resource: where the resource is, which is where its first user in the model is.
    3. The gradient of a variable: where the variable is.
    4. What was created in the model, or by the gradient of such an op: the partition of its unit.
    5. Anything else where its inputs are; everywhere, if they are in several places or everywhere.

    Args:
        nodes: In topological order.
        units: Op name -> unit, as the trace marked them.
        partitions: Unit -> partition.
        gradients: Name of an op that carries a variable's gradient -> the handle of the variable.
        settled: Handles of variables that an earlier step has given to a partition.

    Raises:
        SMPPartitionError: If one op uses variables of several partitions.
    """
    marked = [_marked(units.get(node.name), partitions) for node in nodes]
    roots = _roots(nodes)
    handles, users = _place_handles(nodes, marked, roots, settled or {})
    owners: list[int] = []
    for node in nodes:
        owners.append(_owner(node, owners, marked[node.index], handles, roots, gradients))
    return Assignment(tuple(owners), handles, users)


def _marked(unit: str | None, partitions: Mapping[str, int]) -> int | None:
    if unit is None:
        return None
    return ALL if unit == EVERYWHERE else partitions.get(unit)


def _roots(nodes: Sequence[Node]) -> dict[Output, Output]:
    """Handle -> the placeholder it comes from, through ops that only hand it on."""
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
    settled: Mapping[Output, int],
) -> tuple[dict[Output, int], dict[Output, frozenset[int]]]:
    handles: dict[Output, int] = dict(settled)
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
            "conditional or a function is placed whole: put everything it uses into one partition"
        )
    if where:
        return where.pop()
    return ALL if marked is None else marked


def _owner_of_inputs(node: Node, owners: Sequence[int]) -> int:
    where = {owners[source] for source, _ in node.inputs} - {ALL}
    if len(where) > 1:
        return min(where) if node.type == "AddN" else ALL
    return where.pop() if where else ALL
