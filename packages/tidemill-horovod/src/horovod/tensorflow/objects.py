"""Python objects between ranks. Received objects are unpickled: only ranks of the job can send them.

Without eager execution, the bytes go through a graph and a session of their own.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor
from horovod.tensorflow.collectives import CollectiveKind, run
from horovod.tensorflow.gathers import check_root
from horovod.tensorflow.process import communicator, current_engine, rank, size
from horovod.tensorflow.process_sets import ProcessSet, members_of


def broadcast_object(
    obj: object,
    root_rank: int = 0,
    session: object = None,
    name: str | None = None,
    process_set: ProcessSet | None = None,
) -> Any:
    """Return the object of `root_rank` on all ranks.

    Args:
        obj: Any picklable object; read on `root_rank` only.
        root_rank: Rank whose object all ranks get.
        session: Without effect.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        On `root_rank` and all other ranks, an equal object.

    Raises:
        ValueError: If an argument is not allowed.
    """
    del session
    ranks = members_of("broadcast_object", process_set)
    check_root(root_rank, ranks)
    if size() == 1:
        return obj
    data = _packed(obj) if rank() == root_rank else None
    if current_engine() is None:
        return _unpacked(communicator().broadcast(data, root_rank))
    label = name or "horovod_broadcast_object"

    def sent(array: np.ndarray, label: str) -> np.ndarray:
        (received,) = values_of(
            lambda: run(CollectiveKind.BROADCAST, [tf.constant(array)], label=label, ranks=ranks, root=root_rank)
        )
        return received

    length = int(sent(np.array(0 if data is None else data.size), f"{label}.size"))
    return _unpacked(sent(np.zeros(length, np.uint8) if data is None else data, label))


def broadcast_object_fn(
    root_rank: int = 0, session: object = None, name: str | None = None, process_set: ProcessSet | None = None
) -> Callable[[Any], Any]:
    """Return a function of one object that calls `broadcast_object` with these arguments.

    Args:
        root_rank: Rank whose object all ranks get.
        session: Without effect.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        The function.
    """
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: object, session: object = None, name: str | None = None, process_set: ProcessSet | None = None
) -> list[Any]:
    """Return the objects of all ranks, by rank.

    Args:
        obj: Any picklable object.
        session: Without effect.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        One object per rank.

    Raises:
        ValueError: If an argument is not allowed.
    """
    del session
    ranks = members_of("allgather_object", process_set)
    data = _packed(obj)
    if current_engine() is None:
        return [_unpacked(one) for one in communicator().allgather(data)]
    label = name or "horovod_allgather_object"
    joined, sizes = values_of(
        lambda: run(
            CollectiveKind.ALLGATHER, [tf.constant(data), tf.constant([data.size], tf.int64)], label=label, ranks=ranks
        )
    )
    return [_unpacked(part) for part in np.split(joined, np.cumsum(sizes)[:-1])]


def values_of(compute: Callable[[], Sequence[Tensor]]) -> list[np.ndarray]:
    """Return the values of tensors, eagerly or in a graph and a session of their own.

    Args:
        compute: Creates the tensors.
    """
    if tf.executing_eagerly():
        return [tensor.numpy() for tensor in compute()]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return list(session.run(compute()))


def _packed(obj: object) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _unpacked(data: np.ndarray) -> Any:
    return pickle.loads(data.tobytes())  # noqa: S301
