"""Sums over the whole batch that each microbatch uses, such as the divisor of a masked loss.

The body of a step sees one microbatch. `sum_over_batch` gives it the sum of a number over all microbatches and, with
`ddp`, over all replicas. The summands are computed for all microbatches before the step proper begins, by a small plan
of the same trace; so they may depend on the inputs of the step and on what the model computes from them without state,
such as a mask.
"""

from collections.abc import Sequence

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from smdistributed.modelparallel.tensorflow.collectives import data_parallel_group
from smdistributed.modelparallel.tensorflow.engine.emission import emit
from smdistributed.modelparallel.tensorflow.engine.plan import Plan
from smdistributed.modelparallel.tensorflow.marks import MarkingGraph, Tracer
from smdistributed.modelparallel.tensorflow.session import RankSession

_READS = ("ReadVariableOp", "ResourceGather")


def sum_over_batch(part: Tensor, state: Tracer) -> Tensor:
    """Return the sum of a scalar over the whole batch: in float64, as a placeholder that `emit_sums` fills.

    Args:
        part: The summand of this microbatch, for which `is_known_ahead` holds.
        state: The tracer of the step.
    """
    total = tf.compat.v1.placeholder(tf.float64, [], "sum_over_batch")
    state.sums.append((tf.cast(part, tf.float64), total))
    return total


def is_known_ahead(part: Tensor) -> bool:
    """Return whether a tensor of a step can be computed before the step proper: it depends on no stateful op.

    Reads of variables are allowed: a step does not change weights. A tensor in a loop or branch is not known.

    Args:
        part: A tensor of the traced graph.
    """
    if not isinstance(part.graph, MarkingGraph):
        return False
    seen, work = set(), [part.op]
    while work:
        op = work.pop()
        if op.op_def.is_stateful and op.type not in _READS:
            return False
        for tensor in op.inputs:
            if tensor.op.name not in seen:
                seen.add(tensor.op.name)
                work.append(tensor.op)
    return True


def emit_sums(
    plans: Sequence[Plan], groups: Sequence[Sequence[Sequence[Tensor]]], session: RankSession
) -> list[Tensor]:
    """Compute the sums that a step uses, in the order in which its body asked for them.

    Args:
        plans: One plan for all microbatches, or one for each.
        groups: For each plan, the flat tensors of its microbatches.
    """
    ranks = session.placement.mp_group
    emitted = [
        emit(plan.ahead, group, transport=session.transport, ranks=ranks, timeline=None)
        for plan, group in zip(plans, groups, strict=True)
        if plan.ahead is not None
    ]
    if not emitted:
        return []
    parts = [[part for found in same for (part,) in found] for same in zip(*emitted, strict=True)]
    sums = [tf.add_n(summands) for summands in parts]
    group = data_parallel_group(session)
    if session.config.ddp and group.size > 1:
        (together,) = group.sum([tf.stack(sums)], "sums over the batch")
        sums = tf.unstack(together, len(sums))
    return sums
