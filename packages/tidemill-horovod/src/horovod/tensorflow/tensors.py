"""Ranks and sizes as int32 tensors, with the values at the time when a graph is traced."""

from __future__ import annotations

import tensorflow.compat.v2 as tf

from horovod.tensorflow import process
from horovod.tensorflow._shared.tensorflow_types import Tensor
from horovod.tensorflow.process_sets import ProcessSet, find_process_set


def rank_op(name: str | None = None) -> Tensor:
    """Return `hvd.rank()` as a scalar int32 tensor.

    Args:
        name: Name of the op. Default: ``horovod_rank``.

    Returns:
        int32, shape [].
    """
    return tf.constant(process.rank(), tf.int32, name=name or "horovod_rank")


def local_rank_op(name: str | None = None) -> Tensor:
    """Return `hvd.local_rank()` as a scalar int32 tensor.

    Args:
        name: Name of the op. Default: ``horovod_local_rank``.

    Returns:
        int32, shape [].
    """
    return tf.constant(process.local_rank(), tf.int32, name=name or "horovod_local_rank")


def local_size_op(name: str | None = None) -> Tensor:
    """Return `hvd.local_size()` as a scalar int32 tensor.

    Args:
        name: Name of the op. Default: ``horovod_local_size``.

    Returns:
        int32, shape [].
    """
    return tf.constant(process.local_size(), tf.int32, name=name or "horovod_local_size")


def size_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """Return the number of ranks of a process set as a scalar int32 tensor.

    Args:
        process_set_id: Id of a registered set. Default: 0, the set of all ranks.
        name: Name of the op. Default: ``horovod_size``.

    Returns:
        int32, shape [].

    Raises:
        ValueError: If no set has that id.
    """
    return tf.constant(_registered_set("size_op", process_set_id).size(), tf.int32, name=name or "horovod_size")


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """Return 1 if this process is in a process set, else 0, as a scalar int32 tensor.

    Args:
        process_set_id: Id of a registered set. Default: 0, the set of all ranks.
        name: Name of the op. Default: ``horovod_process_set_included``.

    Returns:
        int32, shape [].

    Raises:
        ValueError: If no set has that id.
    """
    included = _registered_set("process_set_included_op", process_set_id).included()
    return tf.constant(int(bool(included)), tf.int32, name=name or "horovod_process_set_included")


def _registered_set(function: str, process_set_id: int) -> ProcessSet:
    process_set = find_process_set(process_set_id)
    if process_set is None:
        raise ValueError(f"hvd.{function}: process_set_id is {process_set_id!r}; allowed is 0, or that of a set added")
    return process_set
