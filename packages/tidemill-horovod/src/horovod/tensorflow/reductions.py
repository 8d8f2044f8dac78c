"""Reductions over the ranks: allreduce and reducescatter, of one tensor or several."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Gradient, IndexedSlices, Tensor, TensorLike
from horovod.tensorflow.adasum import adasum
from horovod.tensorflow.collectives import (
    CollectiveKind,
    Reduction,
    occupies_threads,
    one_after_the_other,
    run,
    scaled,
)
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gathers import require_rows
from horovod.tensorflow.process import size
from horovod.tensorflow.process_sets import ProcessSet, members_of

if TYPE_CHECKING:
    from typing import TypeGuard


class ReduceOp(Enum):
    """How a reduction combines the values of all ranks."""

    AVERAGE = "average"
    SUM = "sum"
    ADASUM = "adasum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"


Average = ReduceOp.AVERAGE
Sum = ReduceOp.SUM
Adasum = ReduceOp.ADASUM
Min = ReduceOp.MIN
Max = ReduceOp.MAX
Product = ReduceOp.PRODUCT

_NATIVE = {Min: Reduction.MIN, Max: Reduction.MAX, Product: Reduction.PRODUCT}


def allreduce(
    tensor: TensorLike | IndexedSlices | None,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> Any:
    """Reduce a tensor over all ranks.

    Args:
        tensor: A tensor of the same shape and dtype on all ranks; `tf.IndexedSlices`, whose rows are gathered (averages
            of integers become floats); or None, which is returned.
        average: The older form of `op`: True for `Average`, False for `Sum`.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        op: `Average` (the default; averages of integers are truncated), `Sum`, `Adasum`, `Min`, `Max` or `Product`.
        prescale_factor: Factor applied before the reduction.
        postscale_factor: Factor applied after the reduction.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        The result, equal on all ranks and of the same kind as `tensor`.

    Raises:
        ValueError: If both `average` and `op` are given, or an argument is not allowed.
        NotImplementedError: If `tensor` is `tf.IndexedSlices`, and `op` is neither `Average` nor `Sum`, or a factor is
            given; or if `op` is `Adasum` and the number of ranks is not a power of two.
        HorovodInternalError: If executed eagerly, and a rank has ended or hangs. In a graph this is
            `tf.errors.AbortedError`.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del device_dense, device_sparse
    op = _reduce_op("allreduce", average, op)
    check_compression(compression)
    ranks = members_of("allreduce", process_set)
    _refuse_scaled_slices("allreduce", [tensor], prescale_factor, postscale_factor)
    if prescale_factor == postscale_factor == 1.0 and _is_sent_unchanged(tensor, op, compression):
        label, scale = name or "horovod_allreduce", _divisor(op, ranks)
        return run(CollectiveKind.ALLREDUCE, [tensor], label=label, ranks=ranks, scale=scale)[0]
    return reduce_all(
        [tensor],
        op=op,
        compression=compression,
        prescale=prescale_factor,
        postscale=postscale_factor,
        label=name or "horovod_allreduce",
        ranks=ranks,
    )[0]


def grouped_allreduce(
    tensors: Sequence[TensorLike | IndexedSlices | None],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet | None = None,
) -> list[Any]:
    """Reduce several tensors over all ranks, in one collective operation.

    Args:
        tensors: Tensors as for `allreduce`, in the same order on all ranks.
        average: The older form of `op`: True for `Average`, False for `Sum`.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        op: `Average` (the default), `Sum`, `Adasum`, `Min`, `Max` or `Product`.
        prescale_factor: Factor applied before the reduction.
        postscale_factor: Factor applied after the reduction.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        One result per input, in the order of `tensors`, equal on all ranks.

    Raises:
        ValueError: If both `average` and `op` are given, or an argument is not allowed.
        NotImplementedError: As for `allreduce`.
        HorovodInternalError: If a rank has ended or hangs.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del device_dense, device_sparse
    op = _reduce_op("grouped_allreduce", average, op)
    check_compression(compression)
    _refuse_scaled_slices("grouped_allreduce", tensors, prescale_factor, postscale_factor)
    return reduce_all(
        tensors,
        op=op,
        compression=compression,
        prescale=prescale_factor,
        postscale=postscale_factor,
        label="horovod_grouped_allreduce",
        ranks=members_of("grouped_allreduce", process_set),
    )


def reducescatter(
    tensor: TensorLike,
    device_dense: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Reduce a tensor over all ranks, and return this rank's rows of the result.

    The rows (axis 0) are divided evenly; if some are left over, the first ranks get one more each. The whole result is
    sent to every rank, as in an allreduce. As in Horovod, the gradient is the rows of all ranks' gradients, multiplied
    by the number of ranks if `op` is `Sum`.

    Args:
        tensor: A tensor of the same shape and dtype on all ranks, with at least one axis.
        device_dense: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        op: `Average` (the default) or `Sum`.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.
        prescale_factor: Factor applied before the reduction.
        postscale_factor: Factor applied after the reduction.

    Returns:
        This rank's rows of the reduced tensor.

    Raises:
        ValueError: If an argument is not allowed, or a tensor is a scalar in a graph.
        tf.errors.InvalidArgumentError: If a tensor is a scalar.
        HorovodInternalError: If a rank has ended or hangs.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del device_dense
    check_compression(compression)
    (rows,) = _scatter("reducescatter", [tensor], op, compression, prescale_factor, postscale_factor, name, process_set)
    return rows


def grouped_reducescatter(
    tensors: Sequence[TensorLike | IndexedSlices | None],
    device_dense: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Reduce several tensors over all ranks, and keep this rank's share of the rows of each.

    Args:
        tensors: Tensors as for `reducescatter`, in the same order on all ranks.
        device_dense: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        op: `Average` (the default) or `Sum`.
        process_set: The ranks that take part. Default: all ranks.
        prescale_factor: Factor applied before the reduction.
        postscale_factor: Factor applied after the reduction.

    Returns:
        One tensor per input: this rank's rows (axis 0) of the reduced tensor.

    Raises:
        ValueError: If an argument is not allowed, or a tensor is a scalar in a graph.
        tf.errors.InvalidArgumentError: If a tensor is a scalar.
        HorovodInternalError: If a rank has ended or hangs.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del device_dense
    check_compression(compression)
    return _scatter(
        "grouped_reducescatter", tensors, op, compression, prescale_factor, postscale_factor, None, process_set
    )


def handle_average_backwards_compatibility(op: ReduceOp | None, average: bool | None) -> ReduceOp:
    """Return the reduction that `op` and the older argument `average` mean.

    Args:
        op: A reduction, or None.
        average: True for `Average`, False for `Sum`, or None. `Average` is the default.

    Raises:
        ValueError: If both are given.
    """
    return _reduce_op("allreduce", average, op)


def check_compression(compression: Compressor | type[Compressor]) -> None:
    """Check an argument `compression`.

    Raises:
        ValueError: If it has no `compress` and `decompress`.
    """
    if not callable(getattr(compression, "compress", None)) or not callable(getattr(compression, "decompress", None)):
        raise ValueError(
            f"compression is {compression!r}; allowed is hvd.Compression.none, hvd.Compression.fp16, or an object with "
            "compress and decompress"
        )


def reduce_all(
    tensors: Sequence[TensorLike | IndexedSlices | None],
    *,
    op: ReduceOp,
    compression: Compressor | type[Compressor],
    prescale: float,
    postscale: float,
    label: str,
    ranks: Sequence[int] | None,
    separately: bool = False,
) -> list[Any]:
    """Reduce tensors, `tf.IndexedSlices` and Nones.

    Args:
        tensors: The tensors to reduce.
        op: The reduction.
        compression: How floats are compressed while they are sent.
        prescale: Factor applied before the reduction. With `tf.IndexedSlices`, both factors are applied after it.
        postscale: Factor applied after the reduction.
        label: Name of the ops.
        ranks: The ranks that take part; None for all.
        separately: In a graph, send each tensor as soon as it is computed, instead of all when all are computed.
    """
    results: list[Gradient | None] = [None] * len(tensors)
    dense: list[tuple[int, Tensor]] = []
    for place, tensor in enumerate(tensors):
        if isinstance(tensor, tf.IndexedSlices):
            with one_after_the_other(results):
                results[place] = _reduce_slices(
                    tensor, op, prescale * postscale, compression, f"{label}.{place}", ranks
                )
        elif tensor is not None:
            dense.append((place, tf.convert_to_tensor(tensor)))
    groups = [dense] if dense else []
    if separately and not tf.executing_eagerly() and not occupies_threads():
        groups = [[one] for one in dense]
    for group in groups:
        with one_after_the_other(results):
            reduced = _reduce_dense([tensor for _, tensor in group], op, compression, prescale, postscale, label, ranks)
        for (place, _), result in zip(group, reduced):
            results[place] = result
    return results


# --- inside -----------------------------------------------------------------------------------------------------------


def _is_sent_unchanged(
    tensor: TensorLike | IndexedSlices | None, op: ReduceOp, compression: Compressor | type[Compressor]
) -> TypeGuard[Tensor]:
    """Return whether a tensor needs no packing, gathering or scaling: half of the time of a small eager call."""
    return (
        compression is Compression.none
        and (op is Sum or op is Average)
        and isinstance(tensor, tf.Tensor)
        and tensor.dtype.is_floating
    )


def _reduce_dense(
    tensors: Sequence[Tensor],
    op: ReduceOp,
    compression: Compressor | type[Compressor],
    prescale: float,
    postscale: float,
    label: str,
    ranks: Sequence[int] | None,
) -> list[Tensor]:
    packed, contexts = zip(*(compression.compress(scaled(tensor, prescale)) for tensor in tensors))
    if op is Adasum:
        reduced = [scaled(one, postscale) for one in adasum(packed, label=label, ranks=ranks)]
    else:
        for tensor in packed:
            if op in _NATIVE and tensor.dtype.is_complex:
                raise ValueError(f"op is {op.name} for a tensor of {tensor.dtype.name}; allowed is Sum or Average")
        reduced = run(
            CollectiveKind.ALLREDUCE,
            packed,
            label=label,
            ranks=ranks,
            reduction=_NATIVE.get(op, Reduction.SUM),
            scale=_divisor(op, ranks) * postscale,
        )
    return [compression.decompress(tensor, context) for tensor, context in zip(reduced, contexts)]


def _divisor(op: ReduceOp, ranks: Sequence[int] | None) -> float:
    """Return the factor that makes a sum the result of `op`."""
    return 1.0 / (size() if ranks is None else len(ranks)) if op is Average else 1.0


def _refuse_scaled_slices(
    function: str, tensors: Sequence[TensorLike | IndexedSlices | None], prescale: float, postscale: float
) -> None:
    if not prescale == postscale == 1.0 and any(isinstance(tensor, tf.IndexedSlices) for tensor in tensors):
        raise NotImplementedError(
            f"hvd.{function} of tf.IndexedSlices: prescale_factor is {prescale!r} and postscale_factor {postscale!r}; "
            "allowed is 1, or a dense tensor (tf.convert_to_tensor); or multiply the values"
        )


def _reduce_slices(
    slices: tf.IndexedSlices,
    op: ReduceOp,
    factor: float,
    compression: Compressor | type[Compressor],
    label: str,
    ranks: Sequence[int] | None,
) -> tf.IndexedSlices:
    if op not in (Sum, Average):
        raise NotImplementedError(
            f"allreduce of tf.IndexedSlices: op is {op.name}; allowed is Sum or Average, or a dense tensor: "
            "tf.convert_to_tensor, or sparse_as_dense=True"
        )
    packed, context = compression.compress(tf.convert_to_tensor(slices.values))
    values, indices = run(
        CollectiveKind.ALLGATHER, [packed, tf.convert_to_tensor(slices.indices)], label=f"{label}.slices", ranks=ranks
    )
    count = size() if ranks is None else len(ranks)
    gathered = compression.decompress(values, context)
    if op is Average:
        gathered = gathered / tf.cast(count, gathered.dtype)  # integers become floats, as in Horovod
    return tf.IndexedSlices(scaled(gathered, factor), indices, slices.dense_shape)


def _scatter(
    function: str,
    tensors: Sequence[TensorLike | IndexedSlices | None],
    op: ReduceOp,
    compression: Compressor | type[Compressor],
    prescale: float,
    postscale: float,
    name: str | None,
    process_set: ProcessSet | None,
) -> list[Tensor]:
    if op not in (Sum, Average):
        raise ValueError(f"hvd.{function}: op is {op!r}; allowed is hvd.Sum or hvd.Average")
    dense = [tf.convert_to_tensor(tensor) for tensor in tensors]
    require_rows(function, dense)
    ranks = members_of(function, process_set)
    if not dense:
        return []
    packed, contexts = zip(*(compression.compress(scaled(tensor, prescale)) for tensor in dense))
    own = run(
        CollectiveKind.REDUCESCATTER,
        packed,
        label=name or f"horovod_{function}",
        ranks=ranks,
        scale=_divisor(op, ranks) * postscale,
    )
    return [compression.decompress(tensor, context) for tensor, context in zip(own, contexts)]


def _reduce_op(function: str, average: bool | None, op: ReduceOp | None) -> ReduceOp:
    if average is not None and op is not None:
        raise ValueError(f"hvd.{function}: both average={average!r} and op={op!r} are given; give op alone")
    if op is None:
        return Average if average is None or average else Sum
    if not isinstance(op, ReduceOp):
        raise ValueError(f"hvd.{function}: op is {op!r}; allowed is hvd.Average, Sum, Adasum, Min, Max or Product")
    return op
