"""Intercept the script's calls of traced functions, and what else of TensorFlow and Keras the compiler watches."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from tensorflow.python.eager import backprop, context

from tidemill_tensorflow.compiler.graphs import loops
from tidemill_tensorflow.compiler.private_api import ConcreteFunction, is_under_tape, tensors_of
from tidemill_tensorflow.compiler.variants import jit
from tidemill_tensorflow.compiler.variants.traced import StepCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import tensorflow as tf

    from tidemill_tensorflow.compiler.variants.traced import TracedStep

EAGER_GRADIENTS = 20
"""Number of gradients computed outside of ``tf.function`` before the log gives advice."""

_ADVICE = (
    "the script computes gradients outside of tf.function, where nothing is compiled: put @tf.function in front of the"
    " function that computes a step"
)


def install(
    step_of: Callable[[ConcreteFunction], TracedStep | None],
    *,
    restart: Callable[[], None],
    advise: Callable[[str], None],
) -> None:
    """Route every eager call of a traced function through its step, if it has one.

    Args:
        step_of: Returns the step of a traced function, or None for functions that do not train.
        restart: Called when the script sets a seed, to restart random ops as TensorFlow does.
        advise: Called with a line for the log that tells how the script could be compiled.
    """
    original = ConcreteFunction._call_flat

    @functools.wraps(original)
    def call_flat(
        self: ConcreteFunction,
        tensor_inputs: Sequence[tf.Tensor],
        captured_inputs: Sequence[tf.Tensor],
        *cancellation: object,
        **named: object,
    ) -> object:
        step = step_of(self) if context.executing_eagerly() else None
        if step is None:
            return original(self, tensor_inputs, captured_inputs, *cancellation, **named)
        if is_under_tape():
            # A gradient tape around the call needs the original function, which has a gradient.
            step.reason = step.reason or "it is called under a gradient tape of the script"
            return original(self, tensor_inputs, captured_inputs, *cancellation, **named)
        return step.run(StepCall(original, self, tensors_of(tensor_inputs), captured_inputs))

    ConcreteFunction._call_flat = call_flat
    jit.watch_keras()
    loops.keep_sizes_known()
    loops.limit_loops_of_keras_2()
    _watch_seeds(restart)
    _advise_on_eager_gradients(advise)


def _watch_seeds(restart: Callable[[], None]) -> None:
    """Call a function when the script sets a seed, after which TensorFlow's own random ops start anew."""

    def restarting(original: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def clear(self: context.Context, *arguments: object, **named: object) -> object:
            result = original(self, *arguments, **named)
            restart()
            return result

        return clear

    for name in ("_set_global_seed", "clear_kernel_cache"):
        setattr(context.Context, name, restarting(getattr(context.Context, name)))


def _advise_on_eager_gradients(advise: Callable[[str], None]) -> None:
    original = backprop.GradientTape.gradient
    seen = 0

    @functools.wraps(original)
    def gradient(self: tf.GradientTape, *arguments: object, **named: object) -> object:
        nonlocal seen
        if seen < EAGER_GRADIENTS and context.executing_eagerly():
            seen += 1
            if seen == EAGER_GRADIENTS:
                advise(_ADVICE)
        return original(self, *arguments, **named)

    backprop.GradientTape.gradient = gradient
