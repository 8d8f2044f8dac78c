"""Subsets of the ranks with separate collective calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow.collectives import Kind, run
from horovod.tensorflow.process import communicator, rank, size

__all__ = [
    "ProcessSet",
    "add_process_set",
    "find_process_set",
    "forget_process_sets",
    "global_process_set",
    "members_of",
    "remove_process_set",
]


class ProcessSet:
    """Ranks that take part in calls with `process_set=`.

    Args:
        ranks: Ranks in the group of `hvd.init`, in any order.
    """

    def __init__(self, ranks: Iterable[int]) -> None:
        self.ranks: list[int] | None = sorted({int(one) for one in ranks})
        self.process_set_id: int | None = None
        """None before `hvd.add_process_set` and after `hvd.remove_process_set`."""

    def included(self) -> bool:
        """Return whether this process is in the set."""
        return rank() in self._added()

    def size(self) -> int:
        """Return the number of ranks in the set."""
        return len(self._added())

    def rank(self) -> int:
        """Return the rank of this process within the set; -1 if it is not in the set."""
        ranks = self._added()
        return ranks.index(rank()) if rank() in ranks else -1

    def _added(self) -> Sequence[int]:
        if self.process_set_id is None:
            raise ValueError(f"{self!r} is not known: call hvd.add_process_set first, on all ranks")
        return range(size()) if self.ranks is None else self.ranks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(None if self.ranks is None else tuple(self.ranks))

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


global_process_set = ProcessSet([])
"""All ranks."""
global_process_set.ranks = None
global_process_set.process_set_id = 0

_sets: dict[int, ProcessSet] = {}


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Register a set of ranks. Collective: all ranks call it with the same set.

    Args:
        process_set: A `ProcessSet`, or a sequence of ranks.

    Returns:
        The set, with its `process_set_id`.

    Raises:
        ValueError: If its ranks do not exist, differ between the ranks, or already form a registered set.
    """
    added = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = list(added.ranks or [])
    if not ranks or ranks[0] < 0 or ranks[-1] >= size():
        raise ValueError(f"hvd.add_process_set: ranks are {ranks}; allowed are some of 0 to {size() - 1}")
    if added.process_set_id is not None or added in _sets.values():
        raise ValueError(f"hvd.add_process_set: {added!r} was added before: remove that one, or use it")
    everyone = run(Kind.ALLGATHER, [tf.constant([[len(ranks), hash(tuple(ranks))]], tf.int64)], label="process_set")
    if len({tuple(row) for row in everyone[0].numpy().tolist()}) != 1:
        raise ValueError(f"hvd.add_process_set: ranks are {ranks} here and others on other ranks: give all the same")
    added.process_set_id = max(_sets, default=0) + 1
    _sets[added.process_set_id] = added
    return added


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set. Collective: all ranks call it.

    Args:
        process_set: A set that `add_process_set` returned.

    Returns:
        False if the set is not registered, or is the set of all ranks; else True.
    """
    if process_set.process_set_id is None or _sets.get(process_set.process_set_id) is not process_set:
        return False
    run(Kind.ALLGATHER, [tf.zeros([1], tf.int64)], label="process_set")  # waits until no rank uses the set in a call
    del _sets[process_set.process_set_id]
    process_set.process_set_id = None
    return True


def forget_process_sets() -> None:
    """Remove all process sets, after `hvd.shutdown`."""
    for process_set in _sets.values():
        process_set.process_set_id = None
    _sets.clear()


def members_of(function: str, process_set: Any) -> list[int] | None:
    """Return the ranks of a set; None for all.

    Raises:
        ValueError: If `process_set` is not a process set, was not added, or does not include this rank.
    """
    communicator()  # raises if hvd.init has not been called
    if process_set is None or process_set is global_process_set:
        return None
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"hvd.{function}: process_set is {process_set!r}; allowed is a hvd.ProcessSet")
    if not process_set.included():
        raise ValueError(
            f"hvd.{function}: process_set is {process_set!r}, and this is rank {rank()}: call it on the ranks of the "
            "set only"
        )
    return list(process_set.ranks or [])


def find_process_set(process_set_id: int) -> ProcessSet | None:
    """Return the set with this id; 0 is the set of all ranks. None if there is no such set."""
    return global_process_set if process_set_id == 0 else _sets.get(process_set_id)
