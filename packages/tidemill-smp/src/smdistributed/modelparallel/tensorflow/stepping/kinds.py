"""Kinds of values in a batch: predicates for splittable values, and their type specs."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor


@runtime_checkable
class Sliceable(Protocol):
    """An object with its own method for splitting, as SageMaker's library defines it."""

    def smp_slice(self, num_mb: int, mb: int, axis: int) -> Any:
        """Return the piece of microbatch `mb` (from 0) of `num_mb`, split on `axis`.

        Args:
            mb: Index of the microbatch.
        """


def is_sliceable(value: object) -> bool:
    """Return whether a value has a `smp_slice` of its own.

    Args:
        value: Any object.
    """
    return isinstance(value, Sliceable) and not isinstance(value, type)


def is_tensor_like(value: object) -> bool:
    """Return whether a value is a tensor, a variable, an array, or a composite tensor.

    Args:
        value: Any object.
    """
    if isinstance(value, (type, str, bytes)):
        return False
    return tf.is_tensor(value) or isinstance(value, tf.Variable) or hasattr(value, "__array__") or is_composite(value)


def is_composite(value: object) -> bool:
    """Return whether a value is a ragged or sparse tensor, or another composite one.

    Args:
        value: Any object.
    """
    return isinstance(value, tf.__internal__.CompositeTensor) and not isinstance(value, tf.Variable)


def spec_of(tensor: Any) -> tf.TypeSpec:
    # The spec of a symbolic tensor includes its name, which would distinguish otherwise equal arguments.
    """Return the spec of a tensor, without its name.

    Args:
        tensor: A tensor or composite tensor.
    """
    return (
        tf.TensorSpec(tensor.shape, tensor.dtype)
        if tf.is_tensor(tensor) and not is_composite(tensor)
        else (tf.type_spec_from_value(tensor))
    )


def common_spec(pieces: Sequence[Tensor]) -> tf.TypeSpec:
    """Return the narrowest spec that fits all pieces.

    Args:
        pieces: Tensors or composite tensors.

    Raises:
        ValueError: If dtypes or ranks differ.
    """
    specs = [spec_of(piece) for piece in pieces]
    common = specs[0].most_specific_common_supertype(specs[1:])
    if common is None:
        raise ValueError(f"the pieces have nothing in common: {specs}")
    return common
