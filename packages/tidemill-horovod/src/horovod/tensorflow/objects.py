"""Python objects over the group. What comes is unpickled: it comes from the ranks of the job."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from horovod.tensorflow.arguments import refuse
from horovod.tensorflow.process import communicator
from horovod.tensorflow.reductions import check_root

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None, process_set: Any = None
) -> Any:
    """Return the object of `root_rank` on all ranks. Eager mode only.

    Args:
        obj: Anything that can be pickled; read on `root_rank` only.
        root_rank: The rank whose object all ranks get.
        session: Refused: TensorFlow 2 has no sessions.
        name: Without effect: ranks match calls by their order.
        process_set: Refused: the group of `init` is the only one.

    Raises:
        ValueError: If `session` or `process_set` is given, or `root_rank` does not exist.
    """
    del name
    refuse("broadcast_object", session=session, process_set=process_set)
    check_root(root_rank)
    group = communicator()
    data = _packed(obj) if group.rank == root_rank else None
    return obj if group.rank == root_rank and group.size == 1 else _unpacked(group.broadcast(data, root_rank))


def allgather_object(obj: Any, session: Any = None, name: str | None = None, process_set: Any = None) -> list[Any]:
    """Return the objects of all ranks, by rank. Eager mode only.

    Args:
        obj: Anything that can be pickled.
        session: Refused: TensorFlow 2 has no sessions.
        name: Without effect: ranks match calls by their order.
        process_set: Refused: the group of `init` is the only one.

    Raises:
        ValueError: If `session` or `process_set` is given.
    """
    del name
    refuse("allgather_object", session=session, process_set=process_set)
    return [_unpacked(data) for data in communicator().allgather(_packed(obj))]


def _packed(obj: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _unpacked(data: np.ndarray) -> Any:
    return pickle.loads(data.tobytes())  # noqa: S301
