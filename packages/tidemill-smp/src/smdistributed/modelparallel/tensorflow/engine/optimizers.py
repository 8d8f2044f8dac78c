"""Keras optimizers that leave foreign variables alone."""

from __future__ import annotations

import weakref
from typing import Any

from keras.src.optimizers import base_optimizer

from smdistributed.modelparallel.tensorflow.engine.variables import (
    Deferred,
    ForeignVariable,
    is_foreign,
    make_foreign,
    tensorflow_variable,
)

__all__ = ["install", "release_foreign_slots"]

_slots: list[tuple[weakref.ref[Any], weakref.ref[Any]]] = []
"""(variable, slot) of optimizers that were built while nobody knew yet who holds the variable."""


def install() -> None:
    """Teach Keras's optimizers about foreign variables; once per process."""
    kind = base_optimizer.BaseOptimizer
    if not hasattr(kind, "_smp_original_apply"):
        kind._smp_original_apply = kind.apply
        kind.apply = _apply
        kind._smp_original_add = kind.add_variable_from_reference
        kind.add_variable_from_reference = _add_variable_from_reference


def release_foreign_slots() -> None:
    """Let go of the slots of variables that have become foreign."""
    for variable_ref, slot_ref in _slots:
        variable, slot = variable_ref(), slot_ref()
        if variable is not None and slot is not None and is_foreign(variable):
            make_foreign(slot, tensorflow_variable(variable)._smp_owner)
    _slots[:] = [pair for pair in _slots if pair[0]() is not None and pair[1]() is not None]


def _apply(self: Any, grads: Any, trainable_variables: Any = None) -> None:
    variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
    grads = list(grads)
    if not any(is_foreign(variable) for variable in variables) or len(grads) != len(variables):
        self._smp_original_apply(grads, trainable_variables)
        return
    if not self.built:
        with base_optimizer.backend.name_scope(self.name, caller=self):
            self.build(variables)
    local = [(grad, variable) for grad, variable in zip(grads, variables, strict=True) if not is_foreign(variable)]
    if any(grad is not None for grad, _ in local):
        self._smp_original_apply([grad for grad, _ in local], [variable for _, variable in local])
    else:
        self._iterations.assign_add(1)


def _add_variable_from_reference(self: Any, reference_variable: Any, *args: Any, **kwargs: Any) -> Any:
    if not is_foreign(reference_variable):
        slot = self._smp_original_add(reference_variable, *args, **kwargs)
        _slots.append((weakref.ref(tensorflow_variable(reference_variable)), weakref.ref(tensorflow_variable(slot))))
        return slot
    reference = tensorflow_variable(reference_variable)
    assert isinstance(reference, ForeignVariable)
    with Deferred().collecting():
        slot = self._smp_original_add(reference_variable, *args, **kwargs)
    make_foreign(slot, reference._smp_owner)
    return slot
