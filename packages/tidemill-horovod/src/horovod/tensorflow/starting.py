"""`init` and `shutdown`, including the process sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.tensorflow import process
from horovod.tensorflow.process_sets import ProcessSet, check_process_set, forget_process_sets, register_process_set
from horovod.tensorflow.timeline import start_from_environment, stop_timeline


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join a group of processes. Collective. A second call for the same group does nothing.

    Args:
        comm: None for all processes that mpirun or tidemill's launcher started, or for this process alone; a list of
            ranks of mpirun; a communicator of mpi4py; or a `Communicator`, as `smp.init` passes it.
        process_sets: Sets of ranks to register, the same on all ranks: they get their ids, also in a second call. Or
            "dynamic", which has no effect: sets can be added at any time.

    Raises:
        ValueError: If an argument is something else, or a second call names another group.
        RuntimeError: If mpirun started this process, and mpi4py is missing or loads another MPI; or if a rank cannot
            load the native library or be reached.
    """
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise ValueError(f"hvd.init: process_sets is {process_sets!r}; allowed is None, a list of sets, or 'dynamic'")
    sets = [] if process_sets is None or isinstance(process_sets, str) else list(process_sets)
    for one in sets:
        if not isinstance(one, (ProcessSet, Sequence)) or isinstance(one, str):
            raise ValueError(f"hvd.init: process_sets has {one!r}; allowed are hvd.ProcessSet and lists of ranks")
    given = [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in sets]
    was_initialized = process.is_initialized()
    process.init(comm)
    try:
        for one in given:
            check_process_set("init", one)
    except ValueError:
        if not was_initialized:
            process.shutdown()
        raise
    for one in given:
        if one.process_set_id is None:
            register_process_set("init", one)
    if not was_initialized:
        start_from_environment()


def shutdown() -> None:
    """Leave the group; `init` may follow. Collectives that wait for other ranks fail, and process sets are removed."""
    if process.is_initialized():
        stop_timeline()
    process.shutdown()
    forget_process_sets()
