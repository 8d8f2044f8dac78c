"""The processes that mpirun started."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from horovod.tensorflow._shared.ranks.errors import RanksError
from horovod.tensorflow._shared.ranks.mpi_library import find_launcher, start_mpi


def is_under_mpirun() -> bool:
    """Return whether mpirun started this process."""
    return find_launcher() is not None


def is_mpi_communicator(candidate: object) -> bool:
    """Return whether an object is a communicator of mpi4py."""
    return hasattr(candidate, "Get_rank") and hasattr(candidate, "Allreduce")


def find_members(comm: Any) -> Any:
    """Return the communicator of mpi4py for the argument of `hvd.init`. Collective.

    Args:
        comm: None or an empty list for all processes of the job; a list of ranks, which then call this function
            together; or a communicator of mpi4py, which is returned.

    Raises:
        RanksError: If mpi4py is missing or loads another MPI than mpirun's, so that each process would be alone in its
            group; or if this process is not one of the ranks.
    """
    try:
        mpi = start_mpi(find_launcher())
    except ImportError as error:
        raise RanksError(
            f"mpirun has started this process, but mpi4py cannot be imported ({error}): install mpi4py, built for the "
            "MPI that mpirun belongs to"
        ) from error
    if is_mpi_communicator(comm):
        return comm
    everyone = mpi.COMM_WORLD
    return _subset(everyone, list(comm)) if comm else everyone.Dup()


def are_threads_supported() -> bool:
    """Return whether any thread may call MPI."""
    mpi: Any = importlib.import_module("mpi4py.MPI")
    return bool(mpi.Query_thread() == mpi.THREAD_MULTIPLE)


def _subset(everyone: Any, ranks: Sequence[Any]) -> Any:
    rank, size = everyone.Get_rank(), everyone.Get_size()
    given = [int(one) for one in ranks if hasattr(one, "__index__") and 0 <= int(one) < size]
    if rank not in given or len(set(given)) != len(ranks):
        raise RanksError(
            f"comm is {ranks}, but this process is rank {rank} of {size}; give ranks that exist, each once, its own "
            "among them"
        )
    return everyone.Create_group(everyone.Get_group().Incl(given))
