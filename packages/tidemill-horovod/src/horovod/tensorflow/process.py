"""The position of this process among the ranks: `init`, ranks and sizes."""

from __future__ import annotations

import hashlib
import importlib.util
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from horovod.tensorflow import mpi, pmi
from horovod.tensorflow._shared.ranks.meeting import Rendezvous
from horovod.tensorflow.communicator import Communicator, Ranks, Single, is_communicator
from horovod.tensorflow.engine import CollectiveEngine, start_engine, start_timeout_s, stop_engine
from horovod.tensorflow.rendezvous import find_launched, init_errors, meet_by, meet_by_mpi, meet_by_pmi

__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "size",
]


@dataclass(frozen=True)
class _State:
    communicator: Any
    """A `Communicator`, or `Ranks`."""
    hosts: tuple[Any, ...]
    """By rank, the name of its machine."""
    engine: CollectiveEngine | None
    """None with one process, or with a communicator that only exchanges arrays."""
    by_mpi: bool
    """Whether the processes found each other by MPI."""

    @property
    def ranks_on_machine(self) -> list[int]:
        """The ranks on this machine."""
        return [rank for rank in range(len(self.hosts)) if self.hosts[rank] == self.hosts[self.communicator.rank]]

    def local_rank_of(self, rank: int) -> int:
        return self.hosts[:rank].count(self.hosts[rank])

    @property
    def ranks_with_local_rank(self) -> list[int]:
        """The ranks with this rank's local rank on their machines."""
        mine = self.local_rank_of(self.communicator.rank)
        return [rank for rank in range(len(self.hosts)) if self.local_rank_of(rank) == mine]


_state: _State | None = None
_comm: Any = None
"""The argument of `init`."""


def init(comm: Any = None) -> None:
    """Join a group of processes. Collective. A second call for the same group does nothing.

    Args:
        comm: None for all processes that mpirun or tidemill's launcher started, or for this process alone; a list of
            ranks of mpirun; a communicator of mpi4py; or a `Communicator`, as `smp.init` passes it.

    Raises:
        ValueError: If `comm` is something else, or a second call names another group.
        RuntimeError: If mpirun started this process, and mpi4py is missing or loads another MPI; or if a rank cannot
            load the native library or be reached.
    """
    global _comm, _state
    if _state is not None:
        _require_same(comm)
        return
    with init_errors():
        _state, _comm = _start_group(comm), comm


def shutdown() -> None:
    """Leave the group; `init` may follow. Collectives that wait for other ranks fail."""
    global _comm, _state
    if _state is not None and _state.engine is not None:
        stop_engine()
    _state = _comm = None


def is_initialized() -> bool:
    """Return whether `init` has been called.

    Returns:
        False after `shutdown`, too.
    """
    return _state is not None


def communicator() -> Any:
    """Return the group of this process."""
    return _current_state().communicator


def current_engine() -> CollectiveEngine | None:
    """Return the native engine; None with one process, or with a communicator that only exchanges arrays."""
    return _current_state().engine


def rank() -> int:
    """Return the rank of this process in the group. Under `smp` it equals `smp.dp_rank()`.

    Returns:
        From 0 to `size() - 1`.

    Raises:
        ValueError: If `init` has not been called, as in all functions below that need the group.
    """
    return communicator().rank


def size() -> int:
    """Return the number of processes in the group. Under `smp` it equals `smp.dp_size()`.

    Returns:
        At least 1.
    """
    return communicator().size


def local_rank() -> int:
    """Return the rank of this process among those of the group on its machine.

    Returns:
        From 0 to `local_size() - 1`.
    """
    return _current_state().local_rank_of(rank())


def local_size() -> int:
    """Return the number of processes of the group on this machine.

    Returns:
        At least 1.
    """
    return len(_current_state().ranks_on_machine)


def cross_rank() -> int:
    """Return the rank of this machine among the machines that have a process with this local rank.

    Returns:
        From 0 to `cross_size() - 1`.
    """
    return _current_state().ranks_with_local_rank.index(rank())


def cross_size() -> int:
    """Return the number of machines that have a process with this local rank.

    Returns:
        At least 1.
    """
    return len(_current_state().ranks_with_local_rank)


def is_homogeneous() -> bool:
    """Return whether every machine has the same number of processes.

    Returns:
        True with one machine.
    """
    hosts = _current_state().hosts
    return len({hosts.count(host) for host in hosts}) == 1


def mpi_built() -> bool:
    """Return whether mpi4py is installed.

    Returns:
        Whether the module can be found; it is not imported.
    """
    return importlib.util.find_spec("mpi4py") is not None


def mpi_enabled() -> bool:
    """Return whether the processes of the group are connected by MPI.

    Returns:
        False in one process and with tidemill's launcher.
    """
    return _current_state().by_mpi


def mpi_threads_supported() -> bool:
    """Return whether any thread may call MPI.

    Returns:
        False if the group is not connected by MPI.
    """
    return mpi_enabled() and mpi.are_threads_supported()


def gloo_built() -> bool:
    """Return False: this package contains no Gloo.

    Returns:
        False.
    """
    return False


def gloo_enabled() -> bool:
    """Return False: this package contains no Gloo.

    Returns:
        False.
    """
    return False


def nccl_built() -> int:
    """Return 0: this package contains no NCCL.

    Returns:
        0, an int as in Horovod.
    """
    return 0


def cuda_built() -> bool:
    """Return False: tensors go through the memory of the host.

    Returns:
        False.
    """
    return False


def rocm_built() -> bool:
    """Return False: tensors go through the memory of the host.

    Returns:
        False.
    """
    return False


def gpu_available(ext_base_name: str = "tensorflow", verbose: bool = False) -> bool:
    """Return whether TensorFlow has a GPU.

    Args:
        ext_base_name: `tensorflow`, the only framework of this package; False for others.
        verbose: Without effect.

    Returns:
        True if TensorFlow lists at least one physical GPU.
    """
    del verbose
    return ext_base_name in ("tensorflow", "horovod.tensorflow") and bool(_devices("GPU"))


def ddl_built() -> bool:
    """Return False: this package contains no DDL.

    Returns:
        False.
    """
    return False


def ccl_built() -> bool:
    """Return False: this package contains no oneCCL.

    Returns:
        False.
    """
    return False


def _devices(kind: str) -> Sequence[Any]:
    config: Any = tf.config if hasattr(tf.config, "list_physical_devices") else tf.config.experimental  # 1.15
    return config.list_physical_devices(kind)


def _current_state() -> _State:
    if _state is None:
        raise ValueError("Horovod has not been initialized: call hvd.init() first (with smp, smp.init() does it)")
    return _state


def _require_same(comm: Any) -> None:
    # Without an argument the script accepts an existing group, such as the one that smp.init started.
    if comm is not None and not (_is_list(comm) and not comm and _comm is None) and comm is not _comm and comm != _comm:
        raise ValueError(
            f"hvd.init: comm is {comm!r}, but Horovod was initialized before with {_comm!r}: leave the second call "
            "out, or call hvd.shutdown() first"
        )


def _start_group(comm: Any) -> _State:
    by_mpi = mpi.is_mpi_communicator(comm) or (mpi.is_under_mpirun() and (comm is None or _is_list(comm)))
    rendezvous: Rendezvous | None = None
    if by_mpi and not comm and not mpi_built() and pmi.is_available():  # Python 3.7 has no wheel of mpi4py
        by_mpi, rendezvous = False, meet_by_pmi()
    elif by_mpi:
        rendezvous = meet_by_mpi(mpi.find_members(comm))
    elif comm is None:
        rendezvous = find_launched(timeout_s=start_timeout_s())
    group: Any = Single()
    if rendezvous is None:
        group = _group(comm)
        if group.size > 1 and getattr(group, "can_connect", False):
            rendezvous = meet_by(group)
    elif rendezvous.size > 1:
        group = Ranks(rendezvous.rank, rendezvous.size)
    if rendezvous is not None and rendezvous.size > 1:
        engine = start_engine(rendezvous)
        return _State(group, engine.hosts, engine, by_mpi)
    name = hashlib.sha256(socket.gethostname().encode()).digest()
    hosts = group.allgather(np.frombuffer(name[:8], np.int64))
    return _State(group, tuple(int(host[0]) for host in hosts), None, by_mpi)


def _group(comm: Any) -> Communicator:
    if comm is None or (_is_list(comm) and list(comm) in ([], [0])):
        return Single()
    if is_communicator(comm):
        return comm
    raise ValueError(
        f"hvd.init: comm is {comm!r}; allowed is None, a list of ranks under mpirun, a communicator of mpi4py, or an "
        "object with rank, size, allreduce, allgather, broadcast and barrier"
    )


def _is_list(comm: Any) -> bool:
    return isinstance(comm, Sequence) and not isinstance(comm, str)
