"""Collectives that send tensors unchanged (allgather, alltoall, broadcast), and those that only wait."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor, TensorLike
from horovod.tensorflow.collectives import CollectiveKind, run
from horovod.tensorflow.process import communicator, current_engine, size
from horovod.tensorflow.process_sets import ProcessSet, members_of


def allgather(
    tensor: TensorLike, name: str | None = None, ignore_name_scope: bool = False, process_set: ProcessSet | None = None
) -> Tensor:
    """Concatenate the tensors of all ranks along axis 0. As in Horovod, the gradient is averaged over the ranks.

    Args:
        tensor: A tensor of the same dtype and shape on all ranks, except for the size of axis 0; a scalar counts as one
            row.
        name: Name of the op. Ranks match calls by it.
        ignore_name_scope: Without effect.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        The rows of all ranks, ordered by rank; equal on all ranks.

    Raises:
        ValueError: If this rank is not in `process_set`.
        HorovodInternalError: If a rank has ended.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del ignore_name_scope
    ranks = members_of("allgather", process_set)
    return run(CollectiveKind.ALLGATHER, [_with_rows(tensor)], label=name or "horovod_allgather", ranks=ranks)[0]


def grouped_allgather(
    tensors: Sequence[TensorLike],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> list[Tensor]:
    """Concatenate several tensors of all ranks, each along axis 0. Gradients are averaged, as for `allgather`.

    Args:
        tensors: Each with the same rank, dtype and shape on all ranks, except for the size of axis 0.
        name: Name of the op. Ranks match calls by it.
        ignore_name_scope: Without effect.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        One tensor per input, in the order of `tensors`, equal on all ranks.

    Raises:
        ValueError: If this rank is not in `process_set`.
        HorovodInternalError: If a rank has ended.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del ignore_name_scope
    ranks = members_of("grouped_allgather", process_set)
    if not tensors:
        return []
    rows = [_with_rows(tensor) for tensor in tensors]
    return run(CollectiveKind.ALLGATHER, rows, label=name or "horovod_grouped_allgather", ranks=ranks)


def alltoall(
    tensor: TensorLike,
    splits: TensorLike | None = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Send rows (axis 0) of this rank's tensor to each rank, and concatenate the rows that all ranks send to this one.

    Args:
        tensor: A tensor with at least one axis.
        splits: Number of rows for each rank, in the order of ranks: integers >= 0. Rows after their sum are not sent.
            Default: the same number for each rank.
        name: Name of the op. Ranks match calls by it.
        ignore_name_scope: Without effect.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        The received rows. With `splits` a pair: the rows, and the number of rows from each rank (int32).

    Raises:
        tf.errors.InvalidArgumentError: On all ranks, if the splits of a rank do not fit, or its rows cannot be divided
            evenly without them.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del ignore_name_scope
    ranks = members_of("alltoall", process_set)
    dense = tf.convert_to_tensor(tensor)
    require_rows("alltoall", [dense])
    given = tf.zeros([0], tf.int64) if splits is None else tf.convert_to_tensor(splits)
    if not given.dtype.is_integer:
        raise tf.errors.InvalidArgumentError(
            None, None, f"hvd.alltoall: splits are of {given.dtype.name}; allowed are integers"
        )
    both = [dense, tf.cast(given, tf.int64)]
    received, rows = run(CollectiveKind.ALLTOALL, both, label=name or "horovod_alltoall", ranks=ranks)
    return received if splits is None else (received, tf.cast(rows, tf.int32))


def broadcast(
    tensor: TensorLike,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet | None = None,
) -> Tensor:
    """Return the tensor of `root_rank` on all ranks. As in Horovod, the gradient is averaged over the ranks.

    Args:
        tensor: A tensor of the same dtype and shape on all ranks.
        root_rank: Rank whose tensor is sent, counted in all ranks, also with a `process_set`.
        name: Name of the op. Ranks match calls by it.
        ignore_name_scope: Without effect.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        The tensor of `root_rank`.

    Raises:
        ValueError: If `root_rank` does not exist or is not in `process_set`, or this rank is not in it.
        HorovodInternalError: If a rank has ended.
        tf.errors.FailedPreconditionError: If the calls of the ranks do not match.
    """
    del ignore_name_scope
    ranks = members_of("broadcast", process_set)
    check_root(root_rank, ranks)
    dense = tf.convert_to_tensor(tensor)
    return run(CollectiveKind.BROADCAST, [dense], label=name or "horovod_broadcast", ranks=ranks, root=root_rank)[0]


def barrier(process_set: ProcessSet | None = None) -> None:
    """Wait until all ranks have called this function. Eagerly only.

    Args:
        process_set: The ranks that take part. Default: all ranks.

    Raises:
        ValueError: If this rank is not in `process_set`.
        HorovodInternalError: If a rank has ended.
    """
    ranks = members_of("barrier", process_set)
    if current_engine() is not None:
        run(CollectiveKind.ALLGATHER, [tf.zeros([0], tf.uint8)], label="horovod_barrier", ranks=ranks, in_order=True)
    elif size() > 1:
        communicator().barrier()


def join() -> Tensor:
    """Wait until all ranks have called `join`; meanwhile take part in allreduces (Sum and Average) with zeros.

    Call it on ranks that have fewer batches than others.

    Returns:
        A scalar int32 tensor: the rank that joined last.
    """
    members_of("join", None)
    if size() == 1:
        return tf.zeros([], tf.int32)
    return run(CollectiveKind.JOIN, [tf.zeros([], tf.int32)], label="join", in_order=True)[0]


def check_root(root_rank: int, ranks: Sequence[int] | None = None) -> None:
    """Check that a rank exists and is in the set.

    Raises:
        ValueError: If it does not exist or is not in the set.
    """
    if not hasattr(root_rank, "__index__") or not 0 <= root_rank < size():
        raise ValueError(f"root_rank is {root_rank!r}; allowed is 0 to {size() - 1}, the ranks of the group")
    if ranks is not None and root_rank not in ranks:
        raise ValueError(f"root_rank is {root_rank!r}; allowed is one of {list(ranks)}, the ranks of the process set")


def require_rows(function: str, tensors: Sequence[Tensor]) -> None:
    """Check that no tensor is a scalar, as far as shapes are known.

    Raises:
        tf.errors.InvalidArgumentError: If a tensor is a scalar, in eager mode.
        ValueError: The same in a graph, where TensorFlow raises it for shapes.
    """
    if all(tensor.shape.rank != 0 for tensor in tensors):
        return
    words = f"hvd.{function}: a tensor is a scalar; allowed are tensors with at least one axis"
    raise tf.errors.InvalidArgumentError(None, None, words) if tf.executing_eagerly() else ValueError(words)


def _with_rows(tensor: TensorLike) -> Tensor:
    dense = tf.convert_to_tensor(tensor)
    return tf.reshape(dense, [1]) if dense.shape.rank == 0 else dense
