"""Patches Keras 2's `LossScaleOptimizer` to skip a step on all ranks if a gradient on any rank is not finite.

Keras 2 checks only the gradients of one rank. So this module replaces its procedure: check with all ranks, update the
scale, and apply the inner optimizer or only count the step.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Optimizer, Tensor, Variable
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients
from smdistributed.modelparallel.tensorflow.gradients import require_whole
from smdistributed.modelparallel.tensorflow.keras_api import keras_2_module
from smdistributed.modelparallel.tensorflow.optimizers import slots
from smdistributed.modelparallel.tensorflow.patch import Patch
from smdistributed.modelparallel.tensorflow.session import RankSession

_local = threading.local()


def install(prepare: Callable[[Any, Sequence[Any]], None]) -> None:
    """Patch the classes for current and for legacy optimizers.

    Args:
        prepare: Creates the slots of an optimizer for variables.
    """
    scalers = keras_2_module("mixed_precision.loss_scale_optimizer")
    scalers._is_all_finite = _on_all_ranks(scalers._is_all_finite)
    for kind in (scalers.LossScaleOptimizer, scalers.LossScaleOptimizerV3):
        kind.apply_gradients = _applying_together(kind.apply_gradients, prepare, scalers)


def _applying_together(
    original: Callable[..., Any], prepare: Callable[[Any, Sequence[Any]], None], scalers: Any
) -> Callable[..., Any]:
    def apply_gradients(
        self: Any, grads_and_vars: Iterable[tuple[Gradient | None, Variable]], *args: object, **kwargs: object
    ) -> Tensor:
        pairs = list(grads_and_vars)
        grads, variables = [grad for grad, _ in pairs], [variable for _, variable in pairs]
        session = slots.shared_session(variables)
        if session is None:
            return original(self, pairs, *args, **kwargs)
        require_whole(grads, "apply_gradients")
        _refuse_sharding(session)
        scalers._maybe_warn_about_scaling(self._loss_has_been_scaled, self._gradients_have_been_unscaled)
        if session.config.ddp:
            grads = average_gradients(grads, session)
        prepare(self.inner_optimizer, variables)
        with Patch(_local, "groups", slots.groups_of_others(session, None)):
            finite = self._loss_scale.update(grads)[1] if self.dynamic else tf.constant(True)
        return tf.cond(finite, _applied(self.inner_optimizer, grads, variables), _counted(self.inner_optimizer))

    return apply_gradients


def _applied(
    optimizer: Optimizer, grads: Sequence[Gradient | None], variables: Sequence[Variable]
) -> Callable[[], Any]:
    def apply() -> Tensor:
        optimizer.apply_gradients(zip(grads, variables, strict=True))
        return tf.constant(True)

    return apply


def _counted(optimizer: Optimizer) -> Callable[[], Any]:
    def count() -> Tensor:
        optimizer.iterations.assign_add(1)
        return tf.constant(False)

    return count


def _refuse_sharding(session: RankSession) -> None:
    if slots.is_sharding(session):
        raise SMPUsageError(
            "'shard_optimizer_state' is True, but LossScaleOptimizer of Keras 2 would need the gradients of all "
            "replicas: use mixed_bfloat16, which needs no loss scaling, or Keras 3, or set "
            "'shard_optimizer_state' to False"
        )


def _on_all_ranks(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def is_all_finite(grads: Sequence[Gradient | None]) -> Tensor:
        some = any(grad is not None for grad in grads)
        finite = original(grads) if some else tf.constant(True)
        for group in getattr(_local, "groups", ()):
            finite = tf.reduce_all(tf.stack(group.gather([finite], "whether gradients are finite")[0]))
        return finite

    return is_all_finite
