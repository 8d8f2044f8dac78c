"""The processes that mpirun started, as a group."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from horovod.tensorflow._shared.mpi_library import MPIMismatchError, find_launcher, start_mpi

__all__ = ["MPICommunicator", "are_threads_supported", "is_mpi_communicator", "is_under_mpirun", "world", "wrap"]


def is_under_mpirun() -> bool:
    """Return whether mpirun started this process."""
    return find_launcher() is not None


def is_mpi_communicator(candidate: object) -> bool:
    """Return whether an object is a communicator of mpi4py."""
    return hasattr(candidate, "Get_rank") and hasattr(candidate, "Allreduce")


def world(ranks: Sequence[int] | None = None) -> MPICommunicator:
    """Return all processes of the job as a group, or those of `ranks`, which then call this function together.

    Raises:
        RuntimeError: If mpi4py is missing or loads another MPI than mpirun's, or this process is not one of `ranks`.
    """
    try:
        everyone = _started().COMM_WORLD
    except ImportError as error:
        raise RuntimeError(
            f"hvd.init(): mpirun has started this process, but mpi4py cannot be imported ({error}): install mpi4py, "
            "built for the MPI that mpirun belongs to"
        ) from error
    if ranks is None:
        return MPICommunicator(everyone.Dup())
    if everyone.Get_rank() not in ranks or not all(0 <= rank < everyone.Get_size() for rank in ranks):
        raise RuntimeError(
            f"hvd.init(comm={list(ranks)}): this process is rank {everyone.Get_rank()} of {everyone.Get_size()}; give "
            "ranks that exist, its own among them"
        )
    return MPICommunicator(everyone.Create_group(everyone.Get_group().Incl(list(ranks))))


def wrap(communicator: Any) -> MPICommunicator:
    """Return the processes of an mpi4py communicator as a group.

    Raises:
        RuntimeError: If mpi4py loads another MPI than mpirun's, so that each process would be alone in its group.
    """
    _started()
    return MPICommunicator(communicator)


def are_threads_supported() -> bool:
    """Return whether any thread may call MPI."""
    return bool(_mpi().Query_thread() == _mpi().THREAD_MULTIPLE)


class MPICommunicator:
    """Adapts a communicator of mpi4py to `Communicator`."""

    can_connect = True

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()

    def allreduce(self, array: np.ndarray, op: str = "mean") -> np.ndarray:
        """Return the sum or mean."""
        total = self._sum(array)
        return total if op == "sum" else (total / self.size).astype(array.dtype)

    def allgather(self, array: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all members, by rank."""
        return self._communicator.allgather(np.asarray(array))

    def broadcast(self, array: np.ndarray | None, root: int = 0) -> np.ndarray:
        """Return the array of `root`."""
        form = self._communicator.bcast(
            None if self.rank != root or array is None else (array.dtype.name, array.shape), root=root
        )
        mine = self.rank == root
        buffer = np.array(array, copy=True, order="C") if mine else np.empty(form[1], np.dtype(form[0]))
        self._communicator.Bcast(buffer.reshape(-1).view(np.uint8), root=root)
        return buffer

    def barrier(self) -> None:
        """Return when all members have called this method."""
        self._communicator.Barrier()

    def _sum(self, array: np.ndarray) -> np.ndarray:
        if array.dtype.char not in "bBhHiIlLqQfdFD":  # MPI cannot sum half precision and booleans
            first, *others = self._communicator.allgather(array)
            total = np.array(first, copy=True)
            for other in others:
                total = total + other
            return total.astype(array.dtype)
        total = np.array(array, copy=True, order="C")
        self._communicator.Allreduce(_mpi().IN_PLACE, total, op=_mpi().SUM)
        return total


def _started() -> Any:
    try:
        return start_mpi(find_launcher())
    except MPIMismatchError as error:
        raise RuntimeError(f"hvd.init(): {error}") from None


def _mpi() -> Any:
    return importlib.import_module("mpi4py.MPI")
