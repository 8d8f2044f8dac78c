"""Shared rows of sparse gradients: rows of lookups that every microbatch and every replica makes.

The unpartitioned model has each of these rows once, so they are summed; all other rows are concatenated. Shared rows
come first in a gradient. Their number is recorded on its indices tensor, because clipping and scaling create new
gradients with the same indices.
"""

import logging
from collections.abc import Sequence
from functools import reduce

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor

log = logging.getLogger("smdistributed.modelparallel")

ALL_ROWS = -1
"""Number of rows that means all rows."""
_MARK = "_smp_shared_rows"


def mark_shared_rows(slices: tf.IndexedSlices, rows: int | Tensor) -> tf.IndexedSlices:
    """Record on a gradient how many of its leading rows are shared.

    Args:
        rows: An int, `ALL_ROWS`, or a scalar tensor.

    Returns:
        A gradient with the same values.
    """
    indices = tf.identity(slices.indices)
    setattr(indices, _MARK, rows)
    return tf.IndexedSlices(slices.values, indices, slices.dense_shape)


def num_shared_rows(slices: tf.IndexedSlices) -> int | Tensor | None:
    """Return the number of shared rows as an int or a scalar tensor; None if it is unknown.

    Args:
        slices: A sparse gradient.
    """
    rows = getattr(slices.indices, _MARK, None)
    return tf.shape(slices.indices)[0] if isinstance(rows, int) and rows == ALL_ROWS else rows


def split_rows(tensor: Tensor, rows: int | Tensor) -> tuple[Tensor, Tensor]:
    """Split values or indices into the shared rows and the others.

    Args:
        tensor: Shape [rows, ...].
        rows: Number of shared rows, an int or a scalar.

    Returns:
        Both parts, of the same dtype.
    """
    return tensor[:rows], tensor[rows:]


def join_replicas(
    values: Sequence[Tensor], indices: Sequence[Tensor], rows: Sequence[Tensor], dense_shape: Tensor | None
) -> tf.IndexedSlices:
    """Combine the gradients of all replicas: sum shared rows, and concatenate the others.

    Replicas may have different numbers of shared rows, such as positions in batches of different length. The shorter
    index lists must be prefixes of the longest; if they are not, no rows are shared.

    Args:
        rows: Number of shared rows by replica.
    """
    heads, tails = zip(*(split_rows(part, count) for part, count in zip(values, rows, strict=True)), strict=True)
    shared, others = zip(*(split_rows(part, count) for part, count in zip(indices, rows, strict=True)), strict=True)
    longest = reduce(tf.maximum, [tf.shape(part)[0] for part in shared])
    padded = tf.stack([_padded(part, longest, -1) for part in shared])
    common = tf.reduce_max(padded, axis=0)
    is_common = tf.reduce_all((padded == common) | (padded == -1))

    def added() -> tuple[Tensor, Tensor]:
        total = reduce(tf.add, [_padded(part, longest, 0) for part in heads])
        return tf.concat([total, *tails], 0), tf.concat([common, *others], 0)

    def concatenated() -> tuple[Tensor, Tensor]:
        return tf.concat(list(values), 0), tf.concat(list(indices), 0)

    joined, looked_up = tf.cond(is_common, added, concatenated)
    row_shape = values[0].shape[1:] if values[0].shape.rank is not None else None
    if row_shape is not None and not tf.executing_eagerly():
        joined.set_shape([None, *row_shape])
    return tf.IndexedSlices(joined, looked_up, dense_shape)


def warn_of_unknown_rows() -> None:
    """Warn once about a sparse gradient whose number of shared rows is unknown."""
    global _has_warned
    if not _has_warned:
        _has_warned = True
        log.warning(
            "smp: a sparse gradient that replicas average did not come from accumulate(), or has left the tf.function "
            "in which that was called: it is unknown which of its rows all replicas share, such as those of positions, "
            "so all rows are concatenated. Call accumulate() and apply_gradients (or hvd.allreduce) in one function"
        )


_has_warned = False


def _padded(part: Tensor, length: Tensor, value: int) -> Tensor:
    missing = length - tf.shape(part)[0]
    ends = tf.concat([[[0, missing]], tf.zeros([tf.rank(part) - 1, 2], tf.int32)], 0)
    return tf.pad(part, ends, constant_values=tf.cast(value, part.dtype))
