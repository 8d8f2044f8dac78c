"""Subsets of the ranks with separate collective calls.

As in Horovod, `size`, `rank` and `included` of a set are None until the set is registered, by `hvd.init` or
`hvd.add_process_set`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow.compat.v2 as tf

from horovod.tensorflow.collectives import CollectiveKind, run
from horovod.tensorflow.process import communicator, is_initialized, rank, size


class ProcessSet:
    """Ranks that take part in calls with `process_set=`.

    Args:
        ranks: Ranks in the group of `hvd.init`, in any order.

    Raises:
        ValueError: If `ranks` is a communicator of MPI, or something else.
    """

    ranks: list[int]
    """Ascending."""
    process_set_id: int | None
    """None before the set is registered, and after `hvd.remove_process_set`."""
    mpi_comm: None = None
    """Always None: sets are given by their ranks."""

    def __init__(self, ranks: Iterable[int | np.integer]) -> None:
        given = list(ranks) if isinstance(ranks, Iterable) else []
        if not isinstance(ranks, Iterable) or not all(isinstance(one, (int, np.integer)) for one in given):
            raise ValueError(
                f"hvd.ProcessSet: ranks is {ranks!r}; allowed are numbers of ranks (of a communicator of mpi4py: "
                "comm.group.Translate_ranks(range(comm.size), world.group))"
            )
        self.ranks = sorted({int(one) for one in given})
        self.process_set_id = None

    def included(self) -> bool | None:
        """Return whether this process is in the set.

        Returns:
            None before the set is registered.
        """
        return None if self.process_set_id is None else rank() in self.ranks

    def size(self) -> int | None:
        """Return the number of ranks in the set.

        Returns:
            None before the set is registered.
        """
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> int | None:
        """Return the rank of this process within the set.

        Returns:
            -1 if it is not in the set; None before the set is registered.
        """
        if self.process_set_id is None:
            return None
        return self.ranks.index(rank()) if rank() in self.ranks else -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessSet) and self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(tuple(self.ranks))

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"


class _AllRanks(ProcessSet):
    """The set of all ranks, which exists before `hvd.init`; it then has no ranks."""

    def __init__(self) -> None:
        self.process_set_id = 0

    @property
    def ranks(self) -> list[int]:  # type: ignore[override]
        """All ranks, ascending."""
        return list(range(size())) if is_initialized() else []


global_process_set: ProcessSet = _AllRanks()
"""All ranks."""

_sets: dict[int, ProcessSet] = {}
_with_id: list[ProcessSet] = []
"""Every set that has an id of `_sets`: sets with the same ranks share theirs, and lose it together."""
_last_id = 0
"""As in Horovod, ids are not used again."""


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
    if added.process_set_id is not None or added in _sets.values():
        raise ValueError(f"hvd.add_process_set: {added!r} was added before: remove that one, or use it")
    register_process_set("add_process_set", added)
    return added


def register_process_set(function: str, process_set: ProcessSet) -> None:
    """Give a set its id: that of a registered set with the same ranks, or a new one. Collective.

    Args:
        function: The public function that was called, for messages.
        process_set: A set that is not registered.

    Raises:
        ValueError: If its ranks do not exist, or differ between the ranks.
    """
    global _last_id
    ranks = check_process_set(function, process_set)
    everyone = run(
        CollectiveKind.ALLGATHER, [tf.constant([[len(ranks), hash(tuple(ranks))]], tf.int64)], label="process_set"
    )
    if len({tuple(row) for row in everyone[0].numpy().tolist()}) != 1:
        raise ValueError(f"hvd.{function}: ranks are {ranks} here and others on other ranks: give all the same")
    equal = next((one for one in _sets.values() if one == process_set), None)
    if equal is None:
        _last_id += 1
        _sets[_last_id] = process_set
    process_set.process_set_id = _last_id if equal is None else equal.process_set_id
    if not any(one is process_set for one in _with_id):
        _with_id.append(process_set)


def check_process_set(function: str, process_set: ProcessSet) -> list[int]:
    """Return the ranks of a set.

    Raises:
        ValueError: If there are none, or they do not exist.
    """
    ranks = process_set.ranks
    if not ranks or ranks[0] < 0 or ranks[-1] >= size():
        raise ValueError(f"hvd.{function}: ranks of a process set are {ranks}; allowed are some of 0 to {size() - 1}")
    return ranks


def remove_process_set(process_set: ProcessSet) -> bool:
    """Remove a process set. Collective: all ranks call it.

    Args:
        process_set: A set that `add_process_set` returned.

    Returns:
        False if the set is not registered, or is the set of all ranks; else True.
    """
    removed_id = process_set.process_set_id
    if removed_id is None or _sets.get(removed_id) != process_set:
        return False
    run(
        CollectiveKind.ALLGATHER, [tf.zeros([1], tf.int64)], label="process_set"
    )  # waits until no rank uses the set in a call
    _forget([one for one in _with_id if one.process_set_id == removed_id])
    return True


def forget_process_sets() -> None:
    """Remove all process sets, after `hvd.shutdown`."""
    global _last_id
    _forget(list(_with_id))
    _last_id = 0


def _forget(gone: Sequence[ProcessSet]) -> None:
    for process_set in gone:
        _sets.pop(process_set.process_set_id or 0, None)
        process_set.process_set_id = None
    _with_id[:] = [one for one in _with_id if one.process_set_id is not None]


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """Return the ranks of all registered sets, by id; 0 is the set of all ranks."""
    return {0: list(global_process_set.ranks), **{id_: list(one.ranks) for id_, one in _sets.items()}}


def members_of(function: str, process_set: ProcessSet | None) -> list[int] | None:
    """Return the ranks of a set; None for all.

    Raises:
        ValueError: If `process_set` is not a process set, was not added, or does not include this rank.
    """
    communicator()  # raises if hvd.init has not been called
    if process_set is None or process_set is global_process_set:
        return None
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"hvd.{function}: process_set is {process_set!r}; allowed is a hvd.ProcessSet")
    if _sets.get(process_set.process_set_id or 0) != process_set:  # also if it was removed by an equal set
        raise ValueError(
            f"hvd.{function}: process_set is {process_set!r}, which is not registered: call hvd.add_process_set first, "
            "on all ranks"
        )
    if not process_set.included():
        raise ValueError(
            f"hvd.{function}: process_set is {process_set!r}, and this is rank {rank()}: call it on the ranks of the "
            "set only"
        )
    return process_set.ranks


def registered(process_set: ProcessSet) -> ProcessSet:
    """Return the registered set with the same ranks, or the set itself if there is none.

    Args:
        process_set: A set, registered or not.
    """
    if process_set.process_set_id is not None:
        return process_set
    return next((one for one in _sets.values() if one == process_set), process_set)


def find_process_set(process_set_id: int) -> ProcessSet | None:
    """Return the set with this id; 0 is the set of all ranks. None if there is no such set.

    Args:
        process_set_id: Id, as `ProcessSet.process_set_id`.
    """
    return global_process_set if process_set_id == 0 else _sets.get(process_set_id)
