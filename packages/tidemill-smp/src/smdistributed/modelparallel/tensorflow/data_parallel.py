"""Data parallelism with `"ddp"`: replicas that start equal and stay equal, as each applies the mean of all gradients.

Each rank talks to those that hold the same partition in the other replicas. Gradients travel in a few large messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.collectives import TensorGroup, data_parallel_group
from smdistributed.modelparallel.tensorflow.session import Session
from smdistributed.modelparallel.tensorflow.world.communicator import Group

__all__ = ["average_gradients", "make_equal", "marked_as_means"]

_BUCKET_BYTES = 32 << 20
_IS_MEAN = "_smp_is_mean"
_SEEDS = "seed_generator_state"
"""In the names of the variables of Keras's random generators: replicas see different data, and draw different masks."""


def average_gradients(gradients: Sequence[Any], session: Session) -> list[Any]:
    """The means over the replicas, bit-equal on all of them; None stays None, `tf.IndexedSlices` stay sparse.

    What is such a mean already stays as it is.

    Args:
        gradients: Those of one rank; the others of its partition call this with as many of the same kinds.
        session: This process among the others.
    """
    group = data_parallel_group(session)
    means = list(gradients)
    if group.size == 1:
        return means
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
    flat = [tf.concat([tf.reshape(means[place], [-1]) for place in bucket], 0) for bucket in buckets]
    for bucket, total in zip(buckets, group.sum(flat, "mean of gradients"), strict=True):
        parts = tf.split(total / group.size, [means[place].shape.num_elements() for place in bucket])
        for place, part in zip(bucket, parts, strict=True):
            means[place] = tf.reshape(part, means[place].shape)
    return marked_as_means(means)


def marked_as_means(gradients: Sequence[Any]) -> list[Any]:
    """The gradients, which `average_gradients` will leave alone: they are equal in all replicas."""
    for gradient in gradients:
        if gradient is not None:
            setattr(gradient, _IS_MEAN, True)
    return list(gradients)


def make_equal(variables: Sequence[Any], group: Group) -> None:
    """Give the variables the values that they have on the first rank of a group; collective over the group, eagerly."""
    for variable in variables:
        if group.size > 1 and _SEEDS not in variable.name:
            is_source = group.rank == 0
            value = group.broadcast(np.asarray(variable.numpy()) if is_source else None)
            if not is_source:
                variable.assign(value)


def _buckets(tensors: Sequence[Any], places: Sequence[int]) -> list[list[int]]:
    """The places of tensors of one dtype that travel in one message."""
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


def _mean_of_slices(slices: tf.IndexedSlices, group: TensorGroup) -> tf.IndexedSlices:
    values, indices = group.gather([slices.values, slices.indices], "mean of sparse gradients", same_shapes=False)
    shape = slices.values.shape
    for value in values:
        value.set_shape([None, *shape[1:]] if shape.rank is not None else None)
    return tf.IndexedSlices(tf.concat(values, 0) / group.size, tf.concat(indices, 0), slices.dense_shape)
