"""Norms and clipping over all partitions of a replica.

Outside a step each rank has the gradients of its own variables; the others are None. A norm over all gradients needs
those of all ranks: the half squared norm of each gradient is exchanged, and summed up in the order of the gradients, so
that the norm is to the bit the one that `tf.linalg.global_norm` gives in one process.

TensorFlow's own functions see the gradients of one rank there, and each rank would clip by another norm: they warn.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup, model_parallel_group
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients, marked_as_means
from smdistributed.modelparallel.tensorflow.gradients import require_whole
from smdistributed.modelparallel.tensorflow.marks import tracer
from smdistributed.modelparallel.tensorflow.session import Session, current, is_initialized
from tensorflow.python.ops import clip_ops

__all__ = ["clip_by_global_norm", "global_norm_of", "install_warning", "scaled_to"]

log = logging.getLogger("smdistributed.modelparallel")

_MISSING = -1.0
"""In place of the norm of a gradient that is on another rank; norms are never negative."""


def clip_by_global_norm(t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None) -> tuple[list[Any], Any]:
    """Scale gradients down so that the norm of all of them together, on all partitions, is at most `clip_norm`.

    What `tf.clip_by_global_norm` does in one process. Called outside the step, by all ranks of the replica; inside a
    step `tf.clip_by_global_norm` is right by itself, and this function does the same. With `ddp` the gradients are
    averaged over the replicas first; `apply_gradients` does not do it again.

    Args:
        t_list: The gradients of all variables, in the same order on all ranks: tensors, `tf.IndexedSlices`, and None
            for those that are on other ranks or do not exist.
        clip_norm: The largest norm.
        use_norm: The global norm, if it is known.

    Returns:
        The scaled gradients, None where they were None, and the global norm.

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


def _clip(gradients: list[Any], clip_norm: Any, use_norm: Any, session: Session) -> tuple[list[Any], Any]:
    if session.config.partitions == 1:
        return tf.clip_by_global_norm(gradients, clip_norm, use_norm)
    places = [place for place, gradient in enumerate(gradients) if gradient is not None]
    if use_norm is None:
        local = [gradients[place] for place in places]
        use_norm = global_norm_of(local, places, len(gradients), [model_parallel_group(session)])
    scaled = iter(scaled_to(use_norm, clip_norm, [gradients[place] for place in places]))
    return [None if gradient is None else next(scaled) for gradient in gradients], use_norm


def global_norm_of(gradients: Sequence[Any], places: Sequence[int], total: int, groups: Sequence[TensorGroup]) -> Any:
    """The norm of all gradients of the groups together; one that several ranks have counts once.

    Args:
        gradients: Those of this rank.
        places: Their places among all gradients.
        total: How many gradients there are on all ranks together.
        groups: Which ranks have the others: those of the replica, or of the other replicas, or both.
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


def scaled_to(norm: Any, clip_norm: Any, gradients: Sequence[Any]) -> list[Any]:
    """The gradients, scaled so that a global norm of `norm` becomes `clip_norm` at most; NaN if it is not finite."""
    limit = tf.cast(clip_norm, norm.dtype)
    scale = limit * tf.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
    return [_scaled(gradient, scale) for gradient in gradients]


def install_warning() -> None:
    """Have TensorFlow's norm of many tensors warn where it gets the gradients of one rank. Again it does nothing."""
    original = clip_ops.global_norm
    if not getattr(original, "smp_warns", False):
        # The first is what `tf.clip_by_global_norm` calls, the second what scripts do.
        clip_ops.global_norm = tf.linalg.global_norm = _warning_of_parts(original)


def _warning_of_parts(original: Callable[..., Any]) -> Callable[..., Any]:
    warned: list[Session] = []

    @functools.wraps(original)
    def global_norm(t_list: Any, *args: Any, **kwargs: Any) -> Any:
        if is_initialized() and tracer() is None:
            session = current()
            is_part = isinstance(t_list, (list, tuple)) and any(gradient is None for gradient in t_list)
            is_new = not any(one is session for one in warned)
            if is_part and is_new and session.config.partitions > 1 and session.placement.rank == 0:
                warned[:] = [session]
                log.warning(
                    "smp: tf.clip_by_global_norm (or tf.linalg.global_norm) was called outside the step with gradients "
                    "of which some are None: if those are on other ranks, each rank gets a norm of its own, and clips "
                    "otherwise. Call smp.clip_by_global_norm, which takes the same arguments"
                )
        return original(t_list, *args, **kwargs)

    global_norm.smp_warns = True  # type: ignore[attr-defined]
    return global_norm


def _values(gradient: Any) -> Any:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else tf.convert_to_tensor(gradient)


def _scaled(gradient: Any, scale: Any) -> Any:
    scaled = _values(gradient) * tf.cast(scale, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(scaled, gradient.indices, gradient.dense_shape)
    return scaled
