"""Records the arguments with which steps call a model, as the inputs of its SavedModel."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import TypeSpec


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call; tensors are specs with an unknown batch size."""

    names: tuple[str, ...]
    """Names of the arguments that contain tensors."""
    specs: tuple[TypeSpec | None, ...]
    """Per name, the argument's structure of `tf.TypeSpec`."""
    constants: Mapping[str, Any]
    """The other arguments by name."""
    positional: tuple[str, ...] = ()
    """Names of all arguments that were passed by position."""

    def call(self, function: Callable[..., Any], values: Sequence[Any], **options: object) -> Any:
        """Call `function` with the recorded form of arguments and the given tensors.

        Args:
            **options: Passed on.

        Returns:
            What `function` returned.
        """
        given = {**self.constants, **dict(zip(self.names, values, strict=True))}
        args = [given.pop(name) for name in self.positional]
        return function(*args, **given, **options)


def inputs_of(call: Callable[..., object], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Inputs:
    """Record the inputs of a call.

    Args:
        call: The model's `call`, for the names of its parameters.
        args: Positional arguments of the call.
        kwargs: Keyword arguments of the call; `training` is omitted.
    """
    kwargs = {name: value for name, value in kwargs.items() if name != "training"}
    names = _names(call, len(args))
    given = {**dict(zip(names, args, strict=True)), **kwargs}
    given.pop("training", None)
    tensors = {name: value for name, value in given.items() if _has_tensor(value)}
    return Inputs(
        names=tuple(tensors),
        specs=tuple(tf.nest.map_structure(_spec, value) for value in tensors.values()),
        constants={name: value for name, value in given.items() if name not in tensors},
        positional=tuple(name for name in names if name in given),
    )


def merged(one: Inputs | None, other: Inputs) -> Inputs:
    """Return inputs compatible with both calls; `one` if they have nothing in common, `other` if `one` is None.

    Args:
        one: Inputs of earlier calls, or None.
    """
    if one is None or one.names != other.names:
        return one or other
    try:
        specs = tf.nest.map_structure(_common, one.specs, other.specs)
    except (TypeError, ValueError):
        return one
    return Inputs(one.names, specs, one.constants, one.positional)


def _names(call: Callable[..., object], count: int) -> list[str]:
    names = []
    for name, parameter in inspect.signature(call).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            break
        names.append(name)
    return [*names, *(f"args_{number}" for number in range(count))][:count]


def _has_tensor(value: object) -> bool:
    return any(tf.is_tensor(leaf) or isinstance(leaf, np.ndarray) for leaf in tf.nest.flatten(value))


def _spec(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        leaf = tf.convert_to_tensor(leaf)
    if not tf.is_tensor(leaf):
        return leaf
    spec = tf.type_spec_from_value(leaf)
    if not isinstance(spec, tf.TensorSpec) or spec.shape.rank in (None, 0):
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def _common(one: Any, other: Any) -> Any:
    if not isinstance(one, tf.TensorSpec) or not isinstance(other, tf.TensorSpec) or one.dtype != other.dtype:
        return one
    if one.shape.rank != other.shape.rank or one.shape.rank is None:
        return one
    sizes = [a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]
    return tf.TensorSpec(sizes, one.dtype)
