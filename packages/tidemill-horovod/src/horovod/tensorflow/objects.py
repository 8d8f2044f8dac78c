"""Python objects between ranks. Received objects are unpickled: only ranks of the job can send them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.tensorflow.arguments import refuse
from horovod.tensorflow.collectives import Kind, run
from horovod.tensorflow.gathers import check_root
from horovod.tensorflow.process import communicator, current_engine, rank, size
from horovod.tensorflow.process_sets import members_of

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None, process_set: Any = None
) -> Any:
    """Return the object of `root_rank` on all ranks. Eager mode only.

    Args:
        obj: Any picklable object; read on `root_rank` only.
        root_rank: Rank whose object all ranks get.
        session: Refused: TensorFlow 2 has no sessions.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        On `root_rank` and all other ranks, an equal object.

    Raises:
        ValueError: If `session` is given, or an argument is not allowed.
    """
    refuse("broadcast_object", session=session)
    ranks = members_of("broadcast_object", process_set)
    check_root(root_rank, ranks)
    if size() == 1:
        return obj
    data = _packed(obj) if rank() == root_rank else None
    if current_engine() is None:
        return _unpacked(communicator().broadcast(data, root_rank))
    label = name or "horovod_broadcast_object"
    length = tf.constant(0 if data is None else data.size, tf.int64)
    (length,) = run(Kind.BROADCAST, [length], label=f"{label}.size", ranks=ranks, root=root_rank)
    tensor = tf.zeros([int(length)], tf.uint8) if data is None else tf.constant(data)
    (received,) = run(Kind.BROADCAST, [tensor], label=label, ranks=ranks, root=root_rank)
    return _unpacked(received.numpy())


def allgather_object(obj: Any, session: Any = None, name: str | None = None, process_set: Any = None) -> list[Any]:
    """Return the objects of all ranks, by rank. Eager mode only.

    Args:
        obj: Any picklable object.
        session: Refused: TensorFlow 2 has no sessions.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        One object per rank.

    Raises:
        ValueError: If `session` is given, or an argument is not allowed.
    """
    refuse("allgather_object", session=session)
    ranks = members_of("allgather_object", process_set)
    data = _packed(obj)
    if current_engine() is None:
        return [_unpacked(one) for one in communicator().allgather(data)]
    label = name or "horovod_allgather_object"
    tensors = [tf.constant(data), tf.constant([data.size], tf.int64)]
    joined, sizes = run(Kind.ALLGATHER, tensors, label=label, ranks=ranks)
    ends = np.cumsum(sizes.numpy())
    return [_unpacked(part) for part in np.split(joined.numpy(), ends[:-1])]


def _packed(obj: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _unpacked(data: np.ndarray) -> Any:
    return pickle.loads(data.tobytes())  # noqa: S301
