"""Global norms and clipping over all partitions of a replica.

Outside a step each rank has only the gradients of the variables that it holds; the others are None. To compute the norm
over all gradients, the ranks exchange half the squared norm of each gradient and sum these in the order of the
gradients, so that the result is bit-equal to `tf.linalg.global_norm` in one process.

TensorFlow's own functions see the gradients of one rank only, so that each rank would clip by a different norm: they
are patched to warn.
"""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Tensor
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup, model_parallel_group
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients, marked_as_means
from smdistributed.modelparallel.tensorflow.gradients import require_whole
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import RankSession, current, is_initialized
from tensorflow.python.ops import clip_ops

log = logging.getLogger("smdistributed.modelparallel")

_MISSING = -1.0
"""Placeholder for the norm of a gradient on another rank; norms are never negative."""


def clip_by_global_norm(
    t_list: Sequence[Gradient | None], clip_norm: float | Tensor, use_norm: Tensor | None = None
) -> tuple[list[Any], Any]:
    """Scale gradients so that their global norm, over all partitions, is at most `clip_norm`.

    Equivalent to `tf.clip_by_global_norm` in one process. Collective over the replica, outside the step; inside a step
    it calls `tf.clip_by_global_norm`, which sees all gradients there. With `ddp` the gradients are averaged over the
    replicas first, and `apply_gradients` does not average them again.

    Args:
        t_list: The gradients of all variables, in the same order on all ranks: tensors, `tf.IndexedSlices`, and None
            for gradients on other ranks and variables without a gradient.
        clip_norm: The largest norm.
        use_norm: The global norm, if already known. Default: computed from `t_list`.

    Returns:
        The scaled gradients as a list, with None for each None in `t_list`, and the global norm as a scalar tensor.

    Raises:
        SMPUsageError: If a gradient is a `StepOutput`.
    """
    gradients = list(t_list)
    require_whole(gradients, "smp.clip_by_global_norm")
    session = current()
    if tracer() is not None:
        return tf.clip_by_global_norm(gradients, clip_norm, use_norm)
    if session.config.ddp:
        gradients = average_gradients(gradients, session)
    clipped, norm = _clip(gradients, clip_norm, use_norm, session)
    return (marked_as_means(clipped) if session.config.ddp else clipped), norm


def _clip(
    gradients: list[Gradient | None], clip_norm: float | Tensor, use_norm: Tensor | None, session: RankSession
) -> tuple[list[Any], Any]:
    if session.config.partitions == 1:
        return tf.clip_by_global_norm(gradients, clip_norm, use_norm)
    held = {place: gradient for place, gradient in enumerate(gradients) if gradient is not None}
    if use_norm is None:
        use_norm = global_norm_of(list(held.values()), list(held), len(gradients), [model_parallel_group(session)])
    scaled = iter(scaled_to(use_norm, clip_norm, list(held.values())))
    return [None if gradient is None else next(scaled) for gradient in gradients], use_norm


def global_norm_of(
    gradients: Sequence[Gradient], places: Sequence[int], total: int, groups: Sequence[TensorGroup]
) -> Tensor:
    """Return the global norm over all gradients of the groups; a gradient that several ranks have counts once.

    Args:
        places: The index of each of them in the list of all gradients.
        total: Number of gradients on all ranks together.
        groups: The ranks with the other gradients: the replica, the other replicas, or both.
    """
    if not total:
        raise SMPUsageError("a norm over all gradients needs the list of all gradients, received an empty one")
    dtype = next((gradient.dtype for gradient in gradients), tf.float32)
    mine = tf.fill([total], tf.constant(_MISSING, tf.float64))
    if gradients:
        norms = tf.stack([tf.cast(tf.nn.l2_loss(_values(gradient)), tf.float64) for gradient in gradients])
        mine = tf.tensor_scatter_nd_update(mine, [[place] for place in places], norms)
    for group in groups:
        mine, *others = group.gather([mine], "norms of gradients")[0]
        for other in others:
            mine = tf.where(tf.equal(mine, _MISSING), other, mine)
    norms = tf.cast(tf.where(tf.equal(mine, _MISSING), tf.zeros_like(mine), mine), dtype)
    return tf.sqrt(tf.reduce_sum(norms) * tf.constant(2.0, dtype))


def scaled_to(norm: Tensor, clip_norm: float | Tensor, gradients: Sequence[Gradient]) -> list[Any]:
    """Return the gradients scaled from global norm `norm` to at most `clip_norm`; NaN if `norm` is not finite.

    Args:
        norm: Scalar of a float dtype.
        clip_norm: Number or scalar tensor.
        gradients: Tensors, IndexedSlices or None.

    Returns:
        As many gradients, of the same shapes and dtypes.
    """
    limit = tf.cast(clip_norm, norm.dtype)
    scale = limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
    return [_scaled(gradient, scale) for gradient in gradients]


def install_warning() -> None:
    """Patch `tf.linalg.global_norm` to warn if it gets the gradients of one rank only. Idempotent."""
    original = clip_ops.global_norm
    if not getattr(original, "smp_warns", False):
        # `tf.clip_by_global_norm` calls the first, scripts call the second.
        clip_ops.global_norm = tf.linalg.global_norm = _warning_of_parts(original)


def _warning_of_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    warned: list[RankSession] = []

    @functools.wraps(original)
    def global_norm(t_list: Sequence[Gradient | None], *args: object, **kwargs: object) -> Tensor:
        if is_initialized() and tracer() is None:
            session = current()
            is_part = isinstance(t_list, (list, tuple)) and any(gradient is None for gradient in t_list)
            is_new = not any(one is session for one in warned)
            if is_part and is_new and session.config.partitions > 1 and session.placement.rank == 0:
                warned[:] = [session]
                log.warning(
                    "smp: tf.clip_by_global_norm (or tf.linalg.global_norm) was called outside the step with gradients "
                    "of which some are None: if those are on other ranks, each rank computes a different norm, and "
                    "clips differently. Call smp.clip_by_global_norm, which takes the same arguments"
                )
        return original(t_list, *args, **kwargs)

    global_norm.smp_warns = True  # type: ignore[attr-defined]
    return global_norm


def _values(gradient: Gradient) -> Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else tf.convert_to_tensor(gradient)


def _scaled(gradient: Gradient, scale: Tensor) -> Gradient:
    scaled = _values(gradient) * tf.cast(scale, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
    return scaled
