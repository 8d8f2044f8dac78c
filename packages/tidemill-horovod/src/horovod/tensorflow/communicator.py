"""The interface of a group of processes, and the group of one process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from horovod.tensorflow._shared.tensorflow_types import Protocol


class Communicator(Protocol):
    """A group of processes that call the same collectives in the same order, from one thread at a time.

    It may also have a method `holds(variable) -> bool`, which returns whether this process has the variable's value.
    `broadcast_variables` skips variables that this process does not hold. If the communicator has an attribute
    `can_connect` that is true, its members are processes that may connect to each other: the native engine then sends
    the tensors, and the communicator is used only to exchange addresses.
    """

    @property
    def rank(self) -> int:
        """Rank of this process in the group."""

    @property
    def size(self) -> int:
        """Number of processes in the group."""

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """Return the element-wise `sum` or `mean` over the group, bit-equal on all its members.

        Args:
            array: An array of the same shape and dtype on all members.
            op: `sum` or `mean`.

        Returns:
            An array of the same shape and dtype.
        """

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all members, by rank.

        Args:
            array: This member's array; shapes may differ between members.

        Returns:
            One array per member.
        """

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Return the array of member `root`.

        Args:
            array: The array to send; not read on other members.
            root: Rank of the sender in the group.

        Returns:
            The array of `root`.
        """

    def barrier(self) -> None:
        """Return when all members have called this method."""


def is_communicator(candidate: object) -> bool:
    """Return whether an object has the members of a `Communicator`."""
    members = ("rank", "size", "allreduce", "allgather", "broadcast", "barrier")
    return all(hasattr(candidate, name) for name in members)


class Single:
    """The group of a single process."""

    rank = 0
    size = 1

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """Return a copy of the array.

        Args:
            array: Any shape and dtype.
            op: ``sum`` or ``mean``; the same with one process.

        Returns:
            A copy.
        """
        del op
        return np.array(array, copy=True)

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return a list of the array itself.

        Args:
            array: Any shape and dtype.
        """
        return [np.asarray(array)]

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Return the array itself.

        Args:
            array: Any shape and dtype.
            root: 0, the only rank.
        """
        del root
        return np.asarray(array)

    def barrier(self) -> None:
        """Return at once."""


@dataclass(frozen=True)
class Ranks:
    """A group whose processes the native engine connects; it has no methods of its own for arrays."""

    rank: int
    size: int
