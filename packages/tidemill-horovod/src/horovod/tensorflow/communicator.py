"""What a group of processes must be able to do, and the group of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

__all__ = ["Communicator", "Ranks", "Single"]


@runtime_checkable
class Communicator(Protocol):
    """A group of processes that call the same collectives in the same order, from one thread at a time.

    It may also have a method `holds(variable) -> bool`: whether this process has the variable's value. Variables that
    it does not hold are passed over by `broadcast_variables`. If it has an attribute `can_connect` that is true, its
    members are processes that may connect with each other: tensors then travel by the native engine, and the
    communicator is only used to introduce them.
    """

    @property
    def rank(self) -> int:
        """This process, counted in the group."""
        ...

    @property
    def size(self) -> int:
        """How many processes there are."""
        ...

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """The element-wise `sum` (or `mean`) over the group, bit-equal on all of it."""
        ...

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """The arrays of all, by rank; their shapes may differ."""
        ...

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """The array of `root`; elsewhere the argument is not read."""
        ...

    def barrier(self) -> None:
        """Return when all are here."""
        ...


class Single:
    """One process alone."""

    rank = 0
    size = 1

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """The array itself."""
        del op
        return np.array(array, copy=True)

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """The array itself."""
        return [np.asarray(array)]

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """The array itself."""
        del root
        return np.asarray(array)

    def barrier(self) -> None:
        """Return at once."""


@dataclass(frozen=True)
class Ranks:
    """This process among others that the native engine connects, and nothing else."""

    rank: int
    size: int
