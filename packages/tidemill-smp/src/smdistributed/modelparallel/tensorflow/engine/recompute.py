"""Compute the forward pass again in the backward pass, instead of keeping what it made.

A backward segment takes tensors from earlier segments of its partition: the activations, which live from the one to the
other. With `recompute` it takes copies of the ops that make them, and with those only what the forward segment took
itself: what was received, variables, the batch. What an op with a state made, such as a random op, is kept: it would
come out differently.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from smdistributed.modelparallel.tensorflow.engine.nodes import Node

__all__ = ["is_backward", "made_again"]


def is_backward(node: Node) -> bool:
    """Whether a node belongs to the backward pass: tapes and `tf.gradients` put it into a name scope of theirs."""
    return "gradient_tape/" in node.name or "gradients/" in node.name or node.name.startswith("gradient_of_variable")


def made_again(
    nodes: Sequence[Node], members: Set[int], earlier: Mapping[int, int], written: Set[tuple[int, int]]
) -> set[int]:
    """The nodes that a segment should compute again.

    Args:
        nodes: All nodes.
        members: Those of the segment.
        earlier: Node -> level, of the nodes in earlier segments of the partition.
        written: Resource handles that the step writes to; a value read from one must be kept.

    Returns:
        Nodes of the forward pass to add to the segment; none if it belongs to the forward pass itself.
    """
    if not any(is_backward(nodes[index]) for index in members):
        return set()
    found: set[int] = set()
    work = [(source, earlier[source]) for index in members for source, _ in nodes[index].inputs if source in earlier]
    while work:
        index, level = work.pop()
        if index in found or index in members or not _can_repeat(nodes[index], written):
            continue
        found.add(index)
        # No farther back than to what that segment took.
        work.extend((source, level) for source, _ in nodes[index].inputs if earlier.get(source) == level)
    return found


def _can_repeat(node: Node, written: Set[tuple[int, int]]) -> bool:
    if is_backward(node) or node.type == "Placeholder":
        return False
    if node.type == "ReadVariableOp":
        return not any(handle in written for handle in node.handles)
    return not node.stateful and not node.handles
