"""Data parallelism with `"ddp"`: replicas start equal, and stay equal because each applies the mean gradients.

Each rank exchanges with the ranks that hold the same partition in the other replicas, in a few large messages. In
sparse gradients, rows of lookups that all replicas share (such as positions) are summed, and the others concatenated.
With sharded optimizer state each replica receives the means for the variables that it owns (reduce-scatter) and sends
their new values to the others (all-gather): together as many bytes as an all-reduce.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Tensor, Variable
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup, data_parallel_group
from smdistributed.modelparallel.tensorflow.graph_names import AVERAGING, mark
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.shared_rows import join_replicas, num_shared_rows, warn_of_unknown_rows
from smdistributed.modelparallel.tensorflow.world.group import Group

_BUCKET_BYTES = 32 << 20
_IS_MEAN = "_smp_is_mean"
_SEEDS = "seed_generator_state"
"""Part of the names of Keras's generator-state variables, which differ between replicas: each draws its own masks."""


def average_gradients(gradients: Sequence[Gradient | None], session: RankSession) -> list[Any]:
    """Return the mean gradients over the replicas, bit-equal on all; None stays None, `tf.IndexedSlices` stay sparse.

    Gradients that are already means (see `marked_as_means`) are returned unchanged.

    Args:
        gradients: The gradients of this rank; the ranks with the same partition pass as many, of the same kinds.
    """
    group = data_parallel_group(session)
    means: list[Any] = list(gradients)
    if group.size == 1:
        return means
    mark(AVERAGING)
    dense: list[int] = []
    for place, gradient in enumerate(gradients):
        if getattr(gradient, _IS_MEAN, False):
            continue
        if isinstance(gradient, tf.IndexedSlices):
            means[place] = _mean_of_slices(gradient, group)
        elif gradient is not None:
            means[place] = tf.convert_to_tensor(gradient)
            dense.append(place)
    buckets = _buckets(means, dense)
    flat = [_flat([means[place] for place in bucket]) for bucket in buckets]
    for bucket, total in zip(buckets, group.sum(flat, "mean of gradients"), strict=True):
        for place, mean in _unpacked(total / group.size, means, bucket):
            means[place] = mean
    return marked_as_means(means)


def average_owned(
    gradients: Sequence[Gradient | None], owners: Sequence[int | None], session: RankSession
) -> list[Any]:
    """Return the means over the replicas for variables that this replica owns, and the other gradients unchanged.

    Args:
        owners: The replica that owns the variable of each gradient; None if this rank has no gradient for it.
    """
    group = data_parallel_group(session)
    mark(AVERAGING)
    means: list[Any] = list(gradients)
    dense: list[list[int]] = [[] for _ in range(group.size)]
    for place, (gradient, owner) in enumerate(zip(gradients, owners, strict=True)):
        if gradient is None or owner is None or getattr(gradient, _IS_MEAN, False):
            continue
        if isinstance(gradient, tf.IndexedSlices):
            means[place] = _mean_of_slices_for(gradient, owner, group)
        else:
            dense[owner].append(place)
            means[place] = tf.convert_to_tensor(gradient)
    for number, places in enumerate(_rounds(means, dense)):
        flat = [_flat([means[place] for place in bucket]) for bucket in places]
        mine = flat[group.rank]
        dtypes = [None if mine is None or peer == group.rank else mine.dtype for peer in range(group.size)]
        parts = group.exchange(flat, dtypes, f"mean of sharded gradients {number}")
        if mine is not None:
            parts[group.rank] = mine
            for place, mean in _unpacked(reduce(tf.add, parts) / group.size, means, places[group.rank]):
                means[place] = mean
    return means


def all_gather(variables: Sequence[Variable], owners: Sequence[int], session: RankSession) -> None:
    """Assign to each variable its value on the replica that owns it; collective over the replicas.

    Args:
        variables: tf.Variables; all replicas pass as many, of the same kinds.
    """
    group = data_parallel_group(session)
    owned: list[list[int]] = [[] for _ in range(group.size)]
    for place, owner in enumerate(owners):
        owned[owner].append(place)
    after: list[Any] = []
    for number, places in enumerate(_rounds(variables, owned)):
        with tf.control_dependencies(after):  # holds at most one message per replica in memory
            mine = _flat([variables[place].read_value() for place in places[group.rank]])
        dtypes = [variables[bucket[0]].dtype if bucket else None for bucket in places]
        received = group.exchange([mine] * group.size, dtypes, f"updated variables {number}")
        changes = [
            variables[place].assign(value, read_value=False)
            for part, bucket in zip(received, places, strict=True)
            if part is not None
            for place, value in _unpacked(part, variables, bucket)
        ]
        after = [] if tf.executing_eagerly() else changes


def marked_as_means(gradients: Sequence[Gradient | None]) -> list[Any]:
    """Mark gradients as equal in all replicas, so that `average_gradients` returns them unchanged.

    Args:
        gradients: Tensors, IndexedSlices or None; they are marked in place.
    """
    for gradient in gradients:
        if gradient is not None:
            setattr(gradient, _IS_MEAN, True)
    return list(gradients)


def make_equal(variables: Sequence[Variable], group: Group) -> None:
    """Assign to the variables their values on rank 0 of a group; collective over the group, eager only.

    Args:
        variables: Variables of the same shapes on all members.
    """
    for variable in variables:
        if group.size > 1 and _SEEDS not in variable.name:
            is_source = group.rank == 0
            value = group.broadcast(np.asarray(variable.numpy()) if is_source else None)
            if not is_source:
                variable.assign(value)


def _buckets(tensors: Sequence[Tensor | Variable], places: Sequence[int]) -> list[list[int]]:
    """Group the places of tensors into messages of one dtype and about `_BUCKET_BYTES`."""
    buckets: list[list[int]] = []
    room: dict[Any, int] = {}
    latest: dict[Any, list[int]] = {}
    for place in places:
        dtype, size = tensors[place].dtype, tensors[place].shape.num_elements() * tensors[place].dtype.size
        if room.get(dtype, 0) < size:
            latest[dtype] = []
            buckets.append(latest[dtype])
            room[dtype] = _BUCKET_BYTES
        latest[dtype].append(place)
        room[dtype] -= size
    return buckets


def _rounds(tensors: Sequence[Tensor | Variable], owned: Sequence[Sequence[int]]) -> Iterator[list[list[int]]]:
    """Yield the places in the first message of each owner, then those in the second message of each, and so on."""
    buckets = [_buckets(tensors, places) for places in owned]
    for messages in itertools.zip_longest(*buckets, fillvalue=()):
        yield [list(bucket) for bucket in messages]


def _flat(tensors: Sequence[Tensor]) -> Any:
    """Flatten and concatenate tensors into one vector; None without tensors."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0) if tensors else None


def _unpacked(vector: Tensor, tensors: Sequence[Tensor | Variable], places: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Yield each place with its part of the vector, reshaped like the tensor at that place."""
    parts = tf.split(vector, [tensors[place].shape.num_elements() for place in places])
    for place, part in zip(places, parts, strict=True):
        yield place, tf.reshape(part, tensors[place].shape)


def _mean_of_slices(slices: tf.IndexedSlices, group: TensorGroup) -> tf.IndexedSlices:
    parts = _parts_of(slices)
    gathered = group.gather(parts, "mean of sparse gradients", same_shapes=False)
    return _joined(gathered, slices, group.size)


def _mean_of_slices_for(slices: tf.IndexedSlices, owner: int, group: TensorGroup) -> tf.IndexedSlices:
    """Return the mean on the owner, and the unchanged gradient on the other replicas."""
    is_mine = group.rank == owner
    gathered = []
    for number, tensor in enumerate(_parts_of(slices)):
        tensors = [tensor if peer == owner else None for peer in range(group.size)]
        dtypes = [tensor.dtype if is_mine else None] * group.size
        received = group.exchange(tensors, dtypes, f"mean of shared sparse gradients, {_PARTS[number]}")
        received[group.rank] = tensor
        gathered.append(received)
    return _joined(gathered, slices, group.size) if is_mine else slices


_PARTS = ("values", "indices", "shared rows")


def _parts_of(slices: tf.IndexedSlices) -> list[Any]:
    """Return the tensors of a gradient that replicas exchange, with its number of shared rows if there may be any."""
    rows = num_shared_rows(slices)
    if rows is None:
        warn_of_unknown_rows()
    has_none = rows is None or (isinstance(rows, int) and rows == 0)
    return [slices.values, slices.indices] + ([] if has_none else [tf.cast(rows, tf.int32)])


def _joined(gathered: Sequence[list[Any]], slices: tf.IndexedSlices, replicas: int) -> tf.IndexedSlices:
    values, indices, *rows = gathered
    shape = slices.values.shape
    for value, index in zip(values, indices, strict=True):
        value.set_shape([None, *shape[1:]] if shape.rank is not None else None)
        index.set_shape([None])
    if rows:
        for count in rows[0]:
            count.set_shape([])
        joined = join_replicas(values, indices, rows[0], slices.dense_shape)
        return tf.IndexedSlices(joined.values / replicas, joined.indices, joined.dense_shape)
    return tf.IndexedSlices(tf.concat(values, 0) / replicas, tf.concat(indices, 0), slices.dense_shape)
