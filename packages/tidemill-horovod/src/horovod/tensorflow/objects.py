"""Python objects over the group. What comes is unpickled: it comes from the ranks of the job."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from horovod.tensorflow.process import communicator
from horovod.tensorflow.reductions import check_root

__all__ = ["allgather_object", "broadcast_object"]


def broadcast_object(
    obj: Any, root_rank: int = 0, session: Any = None, name: str | None = None, process_set: Any = None
) -> Any:
    """Give the object of `root_rank` on all ranks; elsewhere `obj` is not looked at. Eagerly only.

    Args:
        obj: Anything that can be pickled.
        root_rank: Whose.
        session: Without effect.
        name: Without effect.
        process_set: Without effect.
    """
    del session, name, process_set
    check_root(root_rank)
    group = communicator()
    data = _packed(obj) if group.rank == root_rank else None
    return obj if group.rank == root_rank and group.size == 1 else _unpacked(group.broadcast(data, root_rank))


def allgather_object(obj: Any, session: Any = None, name: str | None = None, process_set: Any = None) -> list[Any]:
    """Give the objects of all ranks, by rank. Eagerly only."""
    del session, name, process_set
    return [_unpacked(data) for data in communicator().allgather(_packed(obj))]


def _packed(obj: Any) -> np.ndarray:
    return np.frombuffer(pickle.dumps(obj), np.uint8)


def _unpacked(data: np.ndarray) -> Any:
    return pickle.loads(data.tobytes())  # noqa: S301
