"""Ranks, sizes and groups of this process, and whether `smp.init` has been called.

Each function raises `SMPNotInitializedError` before `smp.init`.
"""

from typing import Any

from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.communication import barrier, dp_barrier, mp_barrier

__all__ = [
    "barrier",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_mp_group",
    "initialized",
    "local_rank",
    "local_size",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_rank",
    "rdp_size",
    "size",
    "tp_rank",
    "tp_size",
]

initialized: bool
"""Whether `smp.init` has been called."""


def __getattr__(name: str) -> Any:
    # `initialized` is a plain value for callers, and must change when `smp.init` is called.
    if name == "initialized":
        return session.is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def rank() -> int:
    """Return the global rank of this process.

    Returns:
        From 0 to `size() - 1`.

    Raises:
        SMPNotInitializedError: If `smp.init` has not been called, as in all functions of this module.
    """
    return session.current().world.rank


def size() -> int:
    """Return the number of processes of the job.

    Returns:
        At least 1.
    """
    return session.current().world.size


def local_rank() -> int:
    """Return the rank of this process on its machine.

    Returns:
        From 0 to `local_size() - 1`.
    """
    return session.current().world.local_rank


def local_size() -> int:
    """Return the number of processes of the job on this machine.

    Returns:
        At least 1.
    """
    return session.current().world.local_size


def mp_rank() -> int:
    """Return the partition that this process holds.

    Returns:
        From 0 to `mp_size() - 1`.
    """
    return session.current().placement.mp_rank


def mp_size() -> int:
    """Return the number of partitions.

    Returns:
        `partitions` of the configuration.
    """
    return session.current().placement.partitions


def dp_rank() -> int:
    """Return the replica that this process belongs to.

    Returns:
        From 0 to `dp_size() - 1`.
    """
    return session.current().placement.dp_rank


def dp_size() -> int:
    """Return the number of replicas.

    Returns:
        `size() // mp_size()`; 1 without data parallelism.
    """
    return session.current().placement.replicas


def pp_rank() -> int:
    """Return the pipeline rank, which is `mp_rank`.

    Returns:
        From 0 to `pp_size() - 1`.
    """
    return mp_rank()


def pp_size() -> int:
    """Return the number of pipeline stages, which is `mp_size`.

    Returns:
        `mp_size()`.
    """
    return mp_size()


def tp_rank() -> int:
    """Return the tensor-parallel rank, which is always 0.

    Returns:
        0.
    """
    session.current()
    return 0


def tp_size() -> int:
    """Return the size of the tensor-parallel group, which is always 1.

    Returns:
        1.
    """
    session.current()
    return 1


def rdp_rank() -> int:
    """Return the reduced-data-parallel rank, which is `dp_rank`.

    Returns:
        From 0 to `rdp_size() - 1`.
    """
    return dp_rank()


def rdp_size() -> int:
    """Return the size of the reduced-data-parallel group, which is `dp_size`.

    Returns:
        `dp_size()`.
    """
    return dp_size()


def get_mp_group() -> list[int]:
    """Return the global ranks of this replica, ordered by partition.

    Returns:
        `mp_size()` ranks.
    """
    return list(session.current().placement.mp_group)


def get_dp_group() -> list[int]:
    """Return the global ranks that hold this partition, ordered by replica.

    Returns:
        `dp_size()` ranks.
    """
    return list(session.current().placement.dp_group)
