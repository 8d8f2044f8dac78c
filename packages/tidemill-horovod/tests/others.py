"""A communicator for `hvd.init`: this process as one rank of many, whose other ranks' arrays the test decides."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

import horovod.tensorflow as hvd

Answers = Callable[[np.ndarray], list[np.ndarray]]


class Others:
    """This process as rank ``rank`` of ``size``.

    Args:
        answers: Returns the arrays that all ranks send when this one sends an array, by rank.
    """

    def __init__(self, rank: int, size: int, answers: Answers) -> None:
        self.rank, self.size = rank, size
        self._answers = answers
        self._is_started = False

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        if not self._is_started:  # by `hvd.init`, which asks for the machines: all ranks are on one
            self._is_started = True
            return [array] * self.size
        return self._answers(array)

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        assert op == "sum"
        return np.sum(self._answers(array), 0, array.dtype)

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        return self._answers(np.zeros(()) if array is None else array)[root]

    def barrier(self) -> None:
        """Return at once."""


@contextmanager
def among(rank: int, size: int, answers: Answers) -> Iterator[None]:
    """Initialize Horovod as one of many ranks during the block."""
    hvd.shutdown()
    hvd.init(Others(rank, size, answers))
    try:
        yield
    finally:
        hvd.shutdown()
