"""What is the same for all microbatches of a step: weights that the step does not write, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output

__all__ = ["steady_nodes", "written_handles"]


def written_handles(nodes: Sequence[Node]) -> frozenset[Output]:
    """The resource handles that a step may write to: a value read from one is not the same at all times."""
    # A handle that an Identity hands on may be written by that name.
    return frozenset(
        handle
        for node in nodes
        if node.type == "Identity" or (node.stateful and node.type != "ReadVariableOp")
        for handle in node.handles
    )


def steady_nodes(nodes: Sequence[Node]) -> frozenset[int]:
    """The nodes whose outputs are equal for all microbatches.

    Args:
        nodes: In topological order.
    """
    written = written_handles(nodes)
    steady: set[int] = set()
    for node in nodes:
        if node.type == "ReadVariableOp":
            is_steady = written.isdisjoint(node.handles)
        else:
            is_steady = not (node.type == "Placeholder" or node.stateful or node.handles)
            is_steady = is_steady and all(source in steady for source, _ in node.inputs)
        if is_steady:
            steady.add(node.index)
    return frozenset(steady)
