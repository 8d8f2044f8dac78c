"""Intercept the script's calls of traced functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import backprop, context, record
from tensorflow.python.eager.polymorphic_function import concrete_function

from tidemill_tensorflow.compiler import jit, loops, missing_trainer

if TYPE_CHECKING:
    from tidemill_tensorflow.compiler.session import Session

__all__ = ["install"]

EAGER_GRADIENTS = 20
"""Number of gradients computed outside of ``tf.function`` before the log gives advice."""

_ADVICE = (
    "the script computes gradients outside of tf.function, where nothing is compiled: put @tf.function in front of the"
    " function that computes a step"
)


def install(session: Session) -> None:
    """Route every eager call of a traced function through a session."""
    original = concrete_function.ConcreteFunction._call_flat

    @functools.wraps(original)
    def call_flat(self: Any, tensor_inputs: Any, captured_inputs: Any) -> Any:
        if not context.executing_eagerly():
            return original(self, tensor_inputs, captured_inputs)
        step = session.step_of(self)
        if step is None:
            return original(self, tensor_inputs, captured_inputs)
        if record.could_possibly_record():
            # A gradient tape around the call needs the original function, which has a gradient.
            step.reason = step.reason or "it is called under a gradient tape of the script"
            return original(self, tensor_inputs, captured_inputs)
        return step.run(original, self, tensor_inputs, captured_inputs)

    concrete_function.ConcreteFunction._call_flat = call_flat
    jit.watch_keras()
    loops.keep_sizes_known()
    loops.limit_loops_of_tf_keras()
    session.batches.watch()
    missing_trainer.watch_transformers()
    _watch_seeds(session)
    _advise_on_eager_gradients(session)


def _watch_seeds(session: Session) -> None:
    """Restart random ops when the script sets a seed, as TensorFlow restarts its own by clearing their kernels."""

    def restarting(original: Any) -> Any:
        @functools.wraps(original)
        def clear(self: Any, *arguments: Any, **named: Any) -> Any:
            result = original(self, *arguments, **named)
            session.restart_random_ops()
            return result

        return clear

    for name in ("_set_global_seed", "clear_kernel_cache"):
        setattr(context.Context, name, restarting(getattr(context.Context, name)))


def _advise_on_eager_gradients(session: Session) -> None:
    original = backprop.GradientTape.gradient
    seen = 0

    @functools.wraps(original)
    def gradient(self: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal seen
        if seen < EAGER_GRADIENTS and context.executing_eagerly():
            seen += 1
            if seen == EAGER_GRADIENTS:
                session.advice.append(_ADVICE)
                session.note(_ADVICE)
        return original(self, *arguments, **named)

    backprop.GradientTape.gradient = gradient
