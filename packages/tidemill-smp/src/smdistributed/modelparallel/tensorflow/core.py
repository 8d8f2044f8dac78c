"""Where this process stands: ranks, sizes and groups, and whether `smp.init` has been called."""

from __future__ import annotations

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
    # `initialized` is read as a value, as other packages do, and yet says what holds now.
    if name == "initialized":
        return session.is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def rank() -> int:
    """This process, counted among all."""
    return session.current().world.rank


def size() -> int:
    """How many processes there are."""
    return session.current().world.size


def local_rank() -> int:
    """This process, counted on its machine."""
    return session.current().world.local_rank


def local_size() -> int:
    """How many processes there are on this machine."""
    return session.current().world.local_size


def mp_rank() -> int:
    """The partition that this process holds."""
    return session.current().placement.mp_rank


def mp_size() -> int:
    """How many partitions there are."""
    return session.current().placement.partitions


def dp_rank() -> int:
    """The replica that this process belongs to."""
    return session.current().placement.dp_rank


def dp_size() -> int:
    """How many replicas there are."""
    return session.current().placement.replicas


def pp_rank() -> int:
    """The place in the pipeline: the same as `mp_rank`."""
    return mp_rank()


def pp_size() -> int:
    """The length of the pipeline: the same as `mp_size`."""
    return mp_size()


def tp_rank() -> int:
    """The place in a tensor-parallel group, which is always one rank alone."""
    session.current()
    return 0


def tp_size() -> int:
    """The size of a tensor-parallel group: always 1."""
    session.current()
    return 1


def rdp_rank() -> int:
    """The place among those with the same part of the model: the same as `dp_rank`."""
    return dp_rank()


def rdp_size() -> int:
    """How many ranks hold the same part of the model: the same as `dp_size`."""
    return dp_size()


def get_mp_group() -> list[int]:
    """The global ranks of this replica, by partition."""
    return list(session.current().placement.mp_group)


def get_dp_group() -> list[int]:
    """The global ranks that hold this partition, by replica."""
    return list(session.current().placement.dp_group)
