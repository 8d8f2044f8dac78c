"""The optimizers of tf_keras, those of today and the legacy ones, taught to leave foreign variables alone."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign, make_foreign, tensorflow_variable
from smdistributed.modelparallel.tensorflow.keras_api import without_memory
from smdistributed.modelparallel.tensorflow.session import Session, current, is_initialized

__all__ = ["install", "release_foreign_slots"]

_predicates: list[Callable[[Any], bool]] = []
"""Whether a variable belongs to a distributed model, as `install` was told."""
_slots: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
"""(variable, slot) of optimizers that were built while nobody knew yet who holds the variable."""


def install(is_distributed: Callable[[Any], bool]) -> None:
    """Patch both families, once per process.

    Args:
        is_distributed: Whether a variable belongs to a model that has been cut.
    """
    modern, legacy = tf.keras.optimizers.Optimizer, tf.keras.optimizers.legacy.Optimizer
    if hasattr(modern, "_smp_original_apply"):
        return
    _predicates.append(is_distributed)
    scalers: Any = importlib.import_module("tf_keras.src.mixed_precision.loss_scale_optimizer")
    for scaling in (scalers.LossScaleOptimizer, scalers.LossScaleOptimizerV3):
        scaling.apply_gradients = _refusing_to_scale(scaling.apply_gradients)
    modern._smp_original_apply = modern.apply_gradients
    modern.apply_gradients = _applying(modern.apply_gradients, _build)
    modern.add_variable_from_reference = _adding_from_reference(modern.add_variable_from_reference)
    legacy.apply_gradients = _applying(legacy.apply_gradients, _create_slots)
    legacy.add_slot = _adding_slot(legacy.add_slot)


def release_foreign_slots() -> None:
    """Let go of the slots of variables that have become foreign."""
    for variable_ref, slot_ref in _slots:
        variable, slot = variable_ref(), slot_ref()
        if variable is not None and slot is not None and is_foreign(variable):
            make_foreign(slot, tensorflow_variable(variable)._smp_owner)
    _slots[:] = [pair for pair in _slots if pair[0]() is not None and pair[1]() is not None]


def _applying(original: Callable[..., Any], prepare: Callable[[Any, Sequence[Any]], None]) -> Callable[..., Any]:
    def apply_gradients(self: Any, grads_and_vars: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        session = _shared_session([variable for _, variable in pairs])
        if session is not None:
            _refuse_what_sees_one_partition(self, session)
            if session.config.ddp:
                means = average_gradients([grad for grad, _ in pairs], session)
                pairs = [(mean, variable) for mean, (_, variable) in zip(means, pairs, strict=True)]
        if not any(is_foreign(variable) for _, variable in pairs):
            return original(self, pairs, name, *args, **kwargs)
        # Slots of all variables, also of those without a gradient here: their list is the same on all ranks.
        with tf.name_scope(name or getattr(self, "_name", None) or "optimizer"), tf.init_scope():
            prepare(self, [variable for _, variable in pairs])
        local = [(grad, variable) for grad, variable in pairs if not is_foreign(variable)]
        if any(grad is not None for grad, _ in local):
            return original(self, local, name, *args, **kwargs)
        return self.iterations.assign_add(1)

    return apply_gradients


def _shared_session(variables: Sequence[Any]) -> Session | None:
    """The session, if updating the variables concerns other ranks too."""
    return current() if is_initialized() and any(map(_predicates[0], variables)) else None


def _refuse_what_sees_one_partition(optimizer: Any, session: Session) -> None:
    if session.config.partitions > 1 and getattr(optimizer, "global_clipnorm", None):
        raise SMPUsageError(
            f"'global_clipnorm' of {type(optimizer).__name__} is {optimizer.global_clipnorm!r}, but optimizers of "
            "tf_keras see the gradients of one partition: leave it out, and call smp.clip_by_global_norm before "
            "apply_gradients"
        )


def _refusing_to_scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_gradients(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        pairs = list(grads_and_vars)
        session = _shared_session([variable for _, variable in pairs])
        if session is not None and (session.config.partitions > 1 or session.config.ddp):
            raise SMPUsageError(
                "LossScaleOptimizer of tf_keras would decide on each rank by itself whether gradients are finite: use "
                "mixed_bfloat16, which needs no loss scaling, or Keras 3"
            )
        return original(self, pairs, *args, **kwargs)

    return apply_gradients


def _build(optimizer: Any, variables: Sequence[Any]) -> None:
    optimizer.build(variables)


def _create_slots(optimizer: Any, variables: Sequence[Any]) -> None:
    optimizer._create_all_weights(variables)


def _adding_from_reference(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_variable_from_reference(
        self: Any, model_variable: Any, variable_name: str, shape: Any = None, initial_value: Any = None
    ) -> Any:
        if not is_foreign(model_variable):
            slot = original(self, model_variable, variable_name, shape, initial_value)
            _remember(model_variable, slot)
            return slot
        slot = _foreign_slot(model_variable, f"{variable_name}/{model_variable._shared_name}", shape)
        self._variables.append(slot)
        return slot

    return add_variable_from_reference


def _adding_slot(original: Callable[..., Any]) -> Callable[..., Any]:
    def add_slot(self: Any, var: Any, slot_name: str, initializer: Any = "zeros", shape: Any = None) -> Any:
        if not is_foreign(var):
            slot = original(self, var, slot_name, initializer, shape)
            _remember(var, slot)
            return slot
        if slot_name not in self._slot_names:
            self._slot_names.append(slot_name)
        slots = self._slots.setdefault(var._unique_id, {})
        if slot_name not in slots:
            slots[slot_name] = _foreign_slot(var, f"{var._shared_name}/{slot_name}", shape)
            self._weights.append(slots[slot_name])
        return slots[slot_name]

    return add_slot


def _foreign_slot(variable: Any, name: str, shape: Any) -> Any:
    inner = tensorflow_variable(variable)
    slot = without_memory(inner.shape if shape is None else shape, inner.dtype, name, trainable=False)
    make_foreign(slot, inner._smp_owner)
    return slot


def _remember(variable: Any, slot: Any) -> None:
    _slots.append((weakref.ref(tensorflow_variable(variable)), weakref.ref(tensorflow_variable(slot))))
