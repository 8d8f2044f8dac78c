"""A communicator for `hvd.init`: the second of two ranks, the first of which sends the values negated."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import horovod.tensorflow as hvd


class Pair:
    """This process as rank 1 of 2; it records the arrays that it sends."""

    rank, size = 1, 2

    def __init__(self) -> None:
        self.sent: list[np.ndarray] = []
        self.barriers = 0

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        assert op == "sum"
        self.sent.append(array)
        return np.zeros_like(array)

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        self.sent.append(array)
        return [-array if array.dtype.kind == "f" else np.array(array), np.array(array)]

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        if array is None:  # an object that this rank does not read
            return np.frombuffer(pickle.dumps("theirs"), np.uint8)
        self.sent.append(array)
        return -array if root == 0 and array.dtype.kind == "f" else np.array(array)

    def barrier(self) -> None:
        self.barriers += 1


@contextmanager
def joined() -> Iterator[Pair]:
    """Initialize Horovod over a new pair during the block."""
    hvd.shutdown()
    pair = Pair()
    hvd.init(pair)
    pair.sent.clear()
    try:
        yield pair
    finally:
        hvd.shutdown()
