"""Keras optimizers that update what this rank holds, and decide with the other ranks what concerns all.

| of an optimizer | here |
|---|---|
| slots, averages (`use_ema`), accumulators of gradients | take no memory for variables of other ranks |
| `apply` | passes over variables of other ranks, without a warning; counts on ranks that have nothing to update |
| `global_clipnorm` | by the norm over all partitions |
| `LossScaleOptimizer` | skips a step on all ranks if a gradient on any of them is not finite |
| `"ddp"` | averages the gradients over the replicas first |

`clipnorm`, `clipvalue` and weight decay concern single variables and need nothing.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers import base_optimizer

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.clipping import global_norm_of, scaled_to
from smdistributed.modelparallel.tensorflow.collectives import model_parallel_group
from smdistributed.modelparallel.tensorflow.data_parallel import average_gradients
from smdistributed.modelparallel.tensorflow.engine.marks import tracer
from smdistributed.modelparallel.tensorflow.engine.variables import (
    Deferred,
    ForeignVariable,
    is_foreign,
    make_foreign,
    tensorflow_variable,
)
from smdistributed.modelparallel.tensorflow.session import Session, current, is_initialized

__all__ = ["install", "release_foreign_slots"]

_originals: dict[str, Callable[..., Any]] = {}
_predicates: list[Callable[[Any], bool]] = []
"""Whether a variable belongs to a distributed model, as `install` was told."""
_slots: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
"""(variable, slot) of optimizers that were built while nobody knew yet who holds the variable."""
_local = threading.local()
_LISTS = ("_model_variables_moving_average", "_accumulated_gradients")
"""Lists of an optimizer with an entry for each trainable variable, which it goes through."""
_PLACES = "_smp_places"
"""Where an optimizer remembers, while it is applied, the places of its gradients among all, and how many there are."""


def install(is_distributed: Callable[[Any], bool]) -> None:
    """Teach Keras's optimizers about other ranks; once per process.

    Args:
        is_distributed: Whether a variable belongs to a model that has been cut. An optimizer of other variables, as of
            a model that one rank alone trains, asks no other rank for anything.
    """
    if _originals:
        return
    _predicates.append(is_distributed)
    base, scaling = base_optimizer.BaseOptimizer, keras.optimizers.LossScaleOptimizer
    _patch(base, "apply", _apply)
    _patch(base, "add_variable_from_reference", _add_variable_from_reference)
    _patch(base, "_clip_gradients", _clip_gradients)
    _patch(TFOptimizer, "_overwrite_model_variables_with_average_value", _overwrite_with_averages)
    _patch(scaling, "apply", _apply_scaled, name="apply_scaled")
    _patch(scaling, "build", _build_scaled, name="build_scaled")
    _patch(scaling, "check_finite", _check_finite)
    _patch(scaling, "scale_loss", _scale_loss)


def release_foreign_slots() -> None:
    """Let go of the slots of variables that have become foreign."""
    for variable_ref, slot_ref in _slots:
        variable, slot = variable_ref(), slot_ref()
        if variable is not None and slot is not None and is_foreign(variable):
            make_foreign(slot, tensorflow_variable(variable)._smp_owner)
    _slots[:] = [pair for pair in _slots if pair[0]() is not None and pair[1]() is not None]


def _patch(kind: type, attribute: str, new: Callable[..., Any], *, name: str | None = None) -> None:
    _originals[name or attribute] = getattr(kind, attribute)
    setattr(kind, attribute, new)


def _shared_session(variables: Sequence[Any]) -> Session | None:
    """The session, if updating the variables concerns other ranks too; inside a step it does not."""
    if not is_initialized() or tracer() is not None:
        return None
    session = current()
    if session.config.partitions == 1 and not session.config.ddp:
        return None
    return session if any(map(_predicates[0], variables)) else None


# --- apply ------------------------------------------------------------------------------------------------------------


def _apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
    original = _originals["apply"]
    grads = list(grads)
    variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
    session = _shared_session(variables)
    if session is None or not grads or len(grads) != len(variables):
        original(self, grads, trainable_variables)
        return
    _build(self, variables)
    grads = _averaged(grads, session)
    local = [place for place, variable in enumerate(variables) if not is_foreign(variable)]
    with _with_places(self, grads, variables):
        if all(grads[place] is None for place in local):
            _apply_nothing(self)
        else:
            with _without_foreign_entries(self):
                original(self, [grads[place] for place in local], [variables[place] for place in local])


def _build(self: Any, variables: list[Any]) -> None:
    if not self.built:
        with base_optimizer.backend.name_scope(self.name, caller=self):
            self.build(variables)
        self.built = True


def _apply_nothing(self: Any) -> None:
    """Take part in what the other ranks decide, and count."""
    steps = self.gradient_accumulation_steps
    if _clips_by_global_norm(self):
        if steps:
            is_update_step = tf.equal((tf.convert_to_tensor(self._iterations) + 1) % steps, 0)
            tf.cond(is_update_step, lambda: _global_norm(self, []), lambda: 0.0)
        else:
            _global_norm(self, [])
    self._iterations.assign_add(1)


def _averaged(grads: list[Any], session: Session) -> list[Any]:
    if not session.config.ddp or getattr(_local, "averaged", False):
        return grads
    return average_gradients(grads, session)


@contextmanager
def _with_places(self: Any, grads: Sequence[Any], variables: Sequence[Any]) -> Iterator[None]:
    places = [
        place
        for place, (grad, variable) in enumerate(zip(grads, variables, strict=True))
        if grad is not None and not is_foreign(variable) and not getattr(variable, "overwrite_with_gradient", False)
    ]
    vars(self)[_PLACES] = (places, len(variables))  # past Keras, which would track it
    try:
        yield
    finally:
        del vars(self)[_PLACES]


@contextmanager
def _without_foreign_entries(self: Any) -> Iterator[None]:
    """Put None in place of foreign variables where the optimizer goes through all: it passes over None."""
    before = {name: vars(self)[name] for name in _LISTS if vars(self).get(name)}
    for name, entries in before.items():
        vars(self)[name] = [None if entry is not None and is_foreign(entry) else entry for entry in entries]
    try:
        yield
    finally:
        vars(self).update(before)


def _overwrite_with_averages(self: Any, trainable_variables: Sequence[Any]) -> None:
    averages = vars(self)["_model_variables_moving_average"]
    pairs = [
        (variable, average)
        for variable, average in zip(trainable_variables, averages, strict=True)
        if average is not None and not is_foreign(variable)
    ]
    vars(self)["_model_variables_moving_average"] = [average for _, average in pairs]
    try:
        _originals["_overwrite_model_variables_with_average_value"](self, [variable for variable, _ in pairs])
    finally:
        vars(self)["_model_variables_moving_average"] = averages


# --- clipping ---------------------------------------------------------------------------------------------------------


def _clip_gradients(self: Any, grads: Sequence[Any]) -> Any:
    if _PLACES not in vars(self) or not _clips_by_global_norm(self):
        return _originals["_clip_gradients"](self, grads)
    return scaled_to(_global_norm(self, grads), self.global_clipnorm, grads)


def _clips_by_global_norm(self: Any) -> bool:
    if current().config.partitions == 1 or (self.clipnorm and self.clipnorm > 0):
        return False
    return bool(self.global_clipnorm and self.global_clipnorm > 0)


def _global_norm(self: Any, grads: Sequence[Any]) -> Any:
    places, total = vars(self)[_PLACES]
    return global_norm_of(grads, places, total, model_parallel_group(current()))


# --- loss scaling -----------------------------------------------------------------------------------------------------


def _apply_scaled(self: Any, grads: Any, trainable_variables: Any = None) -> None:
    grads = list(grads)
    variables = list(self._trainable_variables if trainable_variables is None else trainable_variables)
    session = _shared_session(variables)
    if session is not None and len(grads) == len(variables):
        _build(self, variables)
        grads = _averaged(grads, session)
    before = getattr(_local, "averaged", False)
    _local.averaged = True  # the optimizer inside gets what has been averaged
    try:
        _originals["apply_scaled"](self, grads, trainable_variables)
    finally:
        _local.averaged = before


def _check_finite(self: Any, grads: Sequence[Any]) -> Any:
    some = any(grad is not None for grad in grads)
    finite = _originals["check_finite"](self, grads) if some else tf.constant(True)
    session = _shared_session(self._trainable_variables)
    if session is None or session.config.partitions == 1:
        return finite
    gathered = model_parallel_group(session).gather([finite], "whether gradients are finite")[0]
    return tf.reduce_all(tf.stack(gathered))


def _scale_loss(self: Any, loss: Any) -> Any:
    # A step is traced once, maybe before the optimizer is built: it must read the scale, not keep its first value.
    if tracer() is not None and not self.built:
        if not hasattr(self, "dynamic_scale"):
            _add_scale(self)
        return keras.ops.multiply(loss, self.dynamic_scale)
    return _originals["scale_loss"](self, loss)


def _add_scale(self: Any) -> None:
    with tf.init_scope():
        self.step_counter = self.add_variable(
            shape=(), dtype="int", initializer="zeros", aggregation="none", name="step_counter"
        )
        self.dynamic_scale = self.add_variable(
            shape=(),
            dtype="float32",
            initializer=keras.initializers.Constant(self.initial_scale),
            aggregation="none",
            name="dynamic_scale",
        )


def _build_scaled(self: Any, var_list: Any) -> None:
    if hasattr(self, "dynamic_scale"):
        self.inner_optimizer.build(var_list)
        base_optimizer.BaseOptimizer.build(self, var_list)
    else:
        _originals["build_scaled"](self, var_list)


# --- slots ------------------------------------------------------------------------------------------------------------


def _add_variable_from_reference(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
    original = _originals["add_variable_from_reference"]
    if not is_foreign(reference_variable):
        slot = original(self, reference_variable, *args, **kwargs)
        _slots.append((weakref.ref(tensorflow_variable(reference_variable)), weakref.ref(tensorflow_variable(slot))))
        return slot
    reference = tensorflow_variable(reference_variable)
    assert isinstance(reference, ForeignVariable)
    with Deferred().collecting():
        slot = original(self, reference_variable, *args, **kwargs)
    make_foreign(slot, reference._smp_owner)
    return slot
