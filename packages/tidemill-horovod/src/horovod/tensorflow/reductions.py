"""Tensors over the group: allreduce, allgather, broadcast. In graphs and eagerly.

Each call is one stateful op, so the ops of a `tf.function` run in the order in which the script makes them; that order
must be the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.tensorflow.arguments import refuse
from horovod.tensorflow.communicator import Communicator
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.process import communicator, size

__all__ = [
    "Average",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "grouped_allreduce",
]


class ReduceOp(Enum):
    """What `allreduce` makes of the values of all ranks."""

    AVERAGE = "average"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: Any = None,
) -> Any:
    """Reduce a tensor over all ranks.

    Args:
        tensor: A tensor of one shape on all ranks; `tf.IndexedSlices`, whose rows are gathered; or None, which stays.
        average: The older form of `op`: True for `Average`, False for `Sum`.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: How floats travel.
        op: `Average` (the default; that of integers is cut off), `Sum`, `Min`, `Max` or `Product`.
        prescale_factor: Multiplied before.
        postscale_factor: Multiplied after.
        name: Of the op.
        process_set: Refused: the group of `init` is the only one.

    Returns:
        The same on all ranks, of the same kind as `tensor`.

    Raises:
        ValueError: If `process_set` is given, both `average` and `op` are, or one of them is not allowed.
    """
    del device_dense, device_sparse
    op = _reduce_op(average, op)
    check_compression(compression)
    refuse("allreduce", process_set=process_set)
    if tensor is None:
        return None
    if isinstance(tensor, tf.IndexedSlices):
        return _allreduce_slices(tensor, op, prescale_factor * postscale_factor, compression, name)
    packed, context = compression.compress(_scaled(tf.convert_to_tensor(tensor), prescale_factor))
    reduced = _reduce(packed, op, name or "horovod_allreduce")
    return _scaled(compression.decompress(reduced, context), postscale_factor)


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> list[Any]:
    """Reduce several tensors, those of one dtype in one message; otherwise as `allreduce`."""
    del device_dense, device_sparse
    op = _reduce_op(average, op)
    check_compression(compression)
    refuse("grouped_allreduce", process_set=process_set)
    results: list[Any] = [None] * len(tensors)
    groups: dict[Any, list[tuple[int, Any]]] = {}
    for place, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            results[place] = _allreduce_slices(tensor, op, prescale_factor * postscale_factor, compression, None)
        elif tensor is not None:
            dense = tf.convert_to_tensor(tensor)
            groups.setdefault(dense.dtype, []).append((place, dense))
    for members in groups.values():
        flat = tf.concat([tf.reshape(tensor, [-1]) for _, tensor in members], 0)
        packed, context = compression.compress(_scaled(flat, prescale_factor))
        reduced = _scaled(
            compression.decompress(_reduce(packed, op, "horovod_grouped_allreduce"), context), postscale_factor
        )
        parts = tf.split(reduced, [tf.size(tensor) for _, tensor in members])
        for (place, tensor), part in zip(members, parts, strict=True):
            results[place] = tf.ensure_shape(tf.reshape(part, tf.shape(tensor)), tensor.shape)
    return results


def allgather(tensor: Any, name: str | None = None, process_set: Any = None) -> Any:
    """Put the tensors of all ranks behind each other on axis 0, in which their sizes may differ; scalars are rows."""
    refuse("allgather", process_set=process_set)
    dense = tf.convert_to_tensor(tensor)
    dense = tf.reshape(dense, [1]) if dense.shape.rank == 0 else dense
    gathered = _op(lambda group, array: np.concatenate(group.allgather(array), 0), dense, name or "horovod_allgather")
    gathered.set_shape([None, *dense.shape[1:]] if dense.shape.rank is not None else None)
    return gathered


def broadcast(tensor: Any, root_rank: int, name: str | None = None, process_set: Any = None) -> Any:
    """Give the tensor of `root_rank` on all ranks."""
    refuse("broadcast", process_set=process_set)
    check_root(root_rank)
    dense = tf.convert_to_tensor(tensor)
    sent = _op(lambda group, array: group.broadcast(array, root_rank), dense, name or "horovod_broadcast")
    sent.set_shape(dense.shape)
    return sent


def barrier(process_set: Any = None) -> None:
    """Return when all ranks are here. Eagerly only."""
    refuse("barrier", process_set=process_set)
    communicator().barrier()


def check_root(root_rank: int) -> None:
    """Refuse a rank that does not exist.

    Raises:
        ValueError: If so.
    """
    if not 0 <= root_rank < size():
        raise ValueError(f"root_rank is {root_rank!r}; allowed is 0 to {size() - 1}, the ranks of the group")


def check_compression(compression: Any) -> None:
    """Refuse what cannot compress.

    Raises:
        ValueError: If so.
    """
    if not callable(getattr(compression, "compress", None)) or not callable(getattr(compression, "decompress", None)):
        raise ValueError(
            f"compression is {compression!r}; allowed is hvd.Compression.none, hvd.Compression.fp16, or an object with "
            "compress and decompress"
        )


# --- inside -----------------------------------------------------------------------------------------------------------


def _op(work: Callable[[Communicator, np.ndarray], np.ndarray], tensor: Any, name: str) -> Any:
    group = communicator()
    dtype = tensor.dtype

    def call(value: Any) -> np.ndarray:
        return np.asarray(work(group, np.asarray(value)), dtype.as_numpy_dtype)

    return tf.numpy_function(call, [tensor], dtype, name=name)


def _reduce(tensor: Any, op: ReduceOp, name: str) -> Any:
    def forward(value: Any) -> Any:
        reduced = _op(lambda group, array: _reduce_array(group, array, op), value, name)
        reduced.set_shape(value.shape)
        return reduced

    if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        return forward(tensor)

    @tf.custom_gradient
    def differentiable(value: Any) -> Any:
        def backward(upstream: Any) -> Any:  # every rank's value went into every rank's result
            return _reduce(upstream, op, name)

        return forward(value), backward

    return differentiable(tensor)


def _reduce_array(group: Communicator, array: np.ndarray, op: ReduceOp) -> np.ndarray:
    if op is ReduceOp.SUM:
        return group.allreduce(array, "sum")
    if op is ReduceOp.AVERAGE:
        total = group.allreduce(array, "sum")
        return total if group.size == 1 else (total / group.size).astype(array.dtype)
    combine = {ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum, ReduceOp.PRODUCT: np.multiply}[op]
    return reduce(combine, group.allgather(array))


def _allreduce_slices(
    slices: tf.IndexedSlices, op: ReduceOp, factor: float, compression: Any, name: str | None
) -> tf.IndexedSlices:
    if op not in (ReduceOp.SUM, ReduceOp.AVERAGE):
        raise ValueError(f"allreduce of tf.IndexedSlices: op is {op.name}; allowed is Sum or Average")
    packed, context = compression.compress(slices.values)
    values = compression.decompress(allgather(packed, name=f"{name or 'horovod_allreduce'}_values"), context)
    indices = allgather(slices.indices, name=f"{name or 'horovod_allreduce'}_indices")
    factor = factor / size() if op is ReduceOp.AVERAGE else factor
    return tf.IndexedSlices(_scaled(values, factor), indices, slices.dense_shape)


def _scaled(tensor: Any, factor: float) -> Any:
    if factor == 1.0:
        return tensor
    if tensor.dtype.is_integer:  # a factor of 0.5 must not become 0
        return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)
    return tensor * tf.cast(factor, tensor.dtype)


def _reduce_op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    if average is not None and op is not None:
        raise ValueError(f"allreduce: both average={average!r} and op={op!r} are given; give op alone")
    if op is None:
        return ReduceOp.AVERAGE if average is None or average else ReduceOp.SUM
    if not isinstance(op, ReduceOp):
        raise ValueError(f"allreduce: op is {op!r}; allowed is hvd.Average, Sum, Min, Max or Product")
    return op
