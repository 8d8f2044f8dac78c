"""The private API of TensorFlow's traced functions and of Keras 2, which differs between versions.

The compiler runs on TensorFlow 2.12, 2.15 and newer. All that it has to do differently on one of them is here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.eager import context

from tidemill_tensorflow.imports import when_imported

try:
    from tensorflow.python.eager import record
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
except ImportError:  # TensorFlow 2.12
    from tensorflow.python.eager import tape as record  # type: ignore[no-redef]
    from tensorflow.python.eager.polymorphic_function.monomorphic_function import (  # type: ignore[no-redef]
        ConcreteFunction,
    )

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from tensorflow.types.experimental import GenericFunction

__all__ = [
    "KERAS_2",
    "ConcreteFunction",
    "is_under_tape",
    "packer_of",
    "runner_of",
    "tensors_of",
    "when_keras_2",
    "without_inlining",
]

KERAS_2 = ("tf_keras.src", "keras.src", "keras")
"""The packages with the modules of Keras 2: in tf_keras, in Keras 2.13 to 2.15, and before."""


def when_keras_2(module: str, action: Callable[[Any], object]) -> None:
    """Call an action with a module of Keras 2, such as ``engine.training``, now or right after its import.

    Keras 3 may have a module of the same name.
    """
    for package in KERAS_2:
        when_imported(f"{package}.{module}", action)


def is_under_tape() -> bool:
    """Return whether a gradient tape of the script may record an eager call."""
    return bool(record.could_possibly_record())


def tensors_of(inputs: Sequence[tf.Tensor | tf.Variable]) -> Sequence[tf.Tensor]:
    """Return the flat inputs of a call, with the handle of each variable in its place, but only once.

    TensorFlow 2.12 passes variables here, and newer versions their handles.
    """
    if not any(isinstance(each, tf.Variable) for each in inputs):
        return inputs
    found: dict[int, tf.Tensor] = {}
    for each in inputs:
        tensor = each.handle if isinstance(each, tf.Variable) else each
        found[id(tensor) if isinstance(each, tf.Variable) else -len(found) - 1] = tensor
    return list(found.values())


def runner_of(concrete: ConcreteFunction) -> Callable[..., Sequence[tf.Tensor] | None]:
    """Return a callable that runs a function on flat tensors, eagerly or inside another function."""
    inference = concrete._inference_function
    if hasattr(inference, "call_flat"):
        return inference.call_flat

    def call_flat(*arguments: tf.Tensor) -> Sequence[tf.Tensor] | None:
        return inference.call(context.context(), list(arguments))

    return call_flat


def without_inlining(function: GenericFunction) -> GenericFunction:
    """Let TensorFlow call a function that is not traced yet where others call it, instead of copying its ops there.

    The public argument ``experimental_attributes`` accepts this attribute only since TensorFlow 2.15.
    """
    function._attributes["_noinline"] = True
    return function


def packer_of(concrete: ConcreteFunction) -> Callable[[Sequence[tf.Tensor]], object]:
    """Return a callable that makes the results of a function from flat tensors. It does not keep the function alive."""
    function_type = getattr(concrete, "function_type", None)
    if function_type is not None:
        return function_type.pack_output
    outputs = concrete.graph.structured_outputs
    specs = tf.nest.map_structure(_spec_of, outputs)
    is_given = [each is not None for each in tf.nest.flatten(outputs, expand_composites=True)]

    def pack(flat: Sequence[tf.Tensor]) -> object:
        left = iter(flat)
        values = [next(left) if given else None for given in is_given]
        return tf.nest.pack_sequence_as(specs, values, expand_composites=True)

    return pack


def _spec_of(result: tf.Tensor | None) -> tf.TypeSpec | None:
    return None if result is None else tf.type_spec_from_value(result)
