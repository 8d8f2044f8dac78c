"""Adasum: a sum of gradients that counts their common part once.

Two gradients a and b are combined as (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b: their sum if they are orthogonal,
their mean if they are equal. Ranks are combined in pairs, then in pairs of pairs, separately for each tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor
from horovod.tensorflow.collectives import CollectiveKind, run
from horovod.tensorflow.process import size


def adasum(tensors: Sequence[Tensor], *, label: str, ranks: Sequence[int] | None) -> list[Tensor]:
    """Combine tensors over the ranks. Each rank gathers the tensors of all other ranks.

    Args:
        tensors: Floating-point tensors, with the same shapes on all ranks.
        label: Name of the call, by which the ranks match it.
        ranks: The ranks of the process set; None for all.

    Returns:
        The combined tensors, in the dtypes of the inputs, equal on all ranks.

    Raises:
        NotImplementedError: If the number of ranks is not a power of two.
        ValueError: If a tensor is not of floats.
    """
    count = size() if ranks is None else len(ranks)
    if count & (count - 1):
        raise NotImplementedError(f"op is Adasum with {count} ranks; allowed is a power of two")
    for tensor in tensors:
        if not tensor.dtype.is_floating:
            raise ValueError(f"op is Adasum for a tensor of {tensor.dtype.name}; allowed are floats")

    @tf.autograph.experimental.do_not_convert  # it loses the variables of the function inside the function
    @tf.custom_gradient
    def combine(*values: Tensor) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
        gathered = run(CollectiveKind.ALLGATHER, [value[tf.newaxis] for value in values], label=label, ranks=ranks)
        combined = [_combine_all(tf.unstack(tf.ensure_shape(all_, [count, *all_.shape[1:]]))) for all_ in gathered]

        def backward(*upstream: Tensor) -> list[Tensor]:
            return adasum(upstream, label="gradient", ranks=ranks)  # as in Horovod

        return combined, backward

    return list(combine(*tensors))


def _combine_all(values: list[Tensor]) -> Tensor:
    dtype = values[0].dtype
    wide = [tf.cast(value, tf.float64) for value in values]
    while len(wide) > 1:
        wide = [_combine(first, second) for first, second in zip(wide[::2], wide[1::2])]
    return tf.cast(wide[0], dtype)


def _combine(first: Tensor, second: Tensor) -> Tensor:
    dot = tf.reduce_sum(first * second)
    share_of = [tf.math.divide_no_nan(dot, 2 * tf.reduce_sum(one * one)) for one in (first, second)]
    return (1 - share_of[0]) * first + (1 - share_of[1]) * second
