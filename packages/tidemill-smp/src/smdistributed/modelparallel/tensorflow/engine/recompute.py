"""Activation recomputation: repeats forward ops in the backward pass instead of keeping their results.

A backward segment uses tensors of earlier segments of its partition, the activations, which stay in memory in between.
With `recompute` it contains copies of the ops that compute them, and keeps only the inputs of the forward segment:
received tensors, values of variables, the batch. Results of stateful ops, such as random ops, are kept: recomputed they
would differ.
"""

from collections.abc import Mapping, Sequence, Set

from smdistributed.modelparallel.tensorflow.engine.nodes import Node


def is_backward(node: Node) -> bool:
    """Return whether a node belongs to the backward pass, by the name scopes that tapes and `tf.gradients` add.

    Args:
        node: A node of the trace.
    """
    return "gradient_tape/" in node.name or "gradients/" in node.name or node.name.startswith("gradient_of_variable")


def nodes_to_recompute(nodes: Sequence[Node], members: Set[int], earlier: Mapping[int, int]) -> set[int]:
    """Return the nodes that a segment should recompute.

    Args:
        earlier: Node -> level, for nodes in earlier segments of the partition.

    Returns:
        Nodes of the forward pass to add to the segment; none for a segment of the forward pass.
    """
    if not any(is_backward(nodes[index]) for index in members):
        return set()
    found: set[int] = set()
    work = [(source, earlier[source]) for index in members for source, _ in nodes[index].inputs if source in earlier]
    while work:
        index, level = work.pop()
        if index in found or index in members or not _can_repeat(nodes[index]):
            continue
        found.add(index)
        # Stop at the inputs of that segment.
        work.extend((source, level) for source, _ in nodes[index].inputs if earlier.get(source) == level)
    return found


def _can_repeat(node: Node) -> bool:
    # Not a read of a variable, which the step or its caller may have written since; its value takes no memory.
    return not is_backward(node) and node.type != "Placeholder" and not node.stateful and not node.handles
