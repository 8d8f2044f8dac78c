"""Detect who chose between plain and XLA: the script, whose choice stays, or Keras 3, whose choice is only a start."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING

from tidemill_tensorflow.compiler.graphs.flat_graphs import KERAS_STEP
from tidemill_tensorflow.compiler.private_api import when_keras_2
from tidemill_tensorflow.imports import when_imported

if TYPE_CHECKING:
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

_ATTRIBUTE = "_XlaMustCompile"
_GIVEN = "_tidemill_jit_compile"
_GIVEN_STEPS = "_tidemill_steps_per_execution"


def is_chosen_by_script(concrete: ConcreteFunction) -> bool:
    """Return whether the script passed ``jit_compile`` to a function, or to the Keras model that calls the function.

    For Keras models this is read from the call stack: Keras 3 replaces "auto" by False on a CPU, so the attribute of
    its functions does not show what the script passed.
    """
    if _given_to_keras():
        return True
    attributes = concrete.function_def.attr
    if _ATTRIBUTE not in attributes:
        return False
    return KERAS_STEP not in concrete.graph.name


def is_chosen_by_keras(concrete: ConcreteFunction) -> bool:
    """Return whether Keras 3 chose XLA for a step, as it does on GPUs. Its functions are those of the script otherwise.

    Args:
        concrete: A function that the script has not chosen for (see `is_chosen_by_script`).
    """
    own = [concrete.function_def, *concrete.graph.as_graph_def().library.function]
    return any(KERAS_STEP in each.signature.name and each.attr[_ATTRIBUTE].b for each in own if _ATTRIBUTE in each.attr)


def has_chosen_steps(model: object) -> bool:
    """Return whether the script passed ``steps_per_execution`` to a Keras model. For a loaded model this is False."""
    return bool(getattr(model, _GIVEN_STEPS, False))


def watch_keras() -> None:
    """Record the arguments of ``Model.compile`` in Keras 3 and Keras 2, whether imported now or later."""
    when_imported("keras.src.trainers.trainer", lambda module: _note_choices(module.Trainer))
    when_keras_2("engine.training", lambda module: _note_choices(module.Model))


def _given_to_keras() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        model = frame.f_locals.get("self") if frame.f_code.co_name in ("fit", "train_on_batch") else None
        if getattr(model, _GIVEN, None) is not None:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _note_choices(trainer: type) -> None:
    original = trainer.compile
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(self: object, *arguments: object, **named: object) -> object:
        bound = signature.bind_partial(self, *arguments, **named).arguments
        given = bound.get("jit_compile")
        result = original(self, *arguments, **named)
        # Keras's own __setattr__ would track the attribute.
        object.__setattr__(self, _GIVEN, given if isinstance(given, bool) else None)
        # The models of transformers pass on their own default, None.
        object.__setattr__(self, _GIVEN_STEPS, bound.get("steps_per_execution") is not None)
        return result

    trainer.compile = compile
