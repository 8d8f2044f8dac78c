"""Binds each rank to separate cores, and sizes TensorFlow's thread pools.

By default TensorFlow sizes the pools of every process to the whole machine. Ranks on one machine would then compete for
the same cores, and pipelining would save no time.
"""

import logging
import os
from contextlib import suppress

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.world.group import Group

_log = logging.getLogger("smdistributed.modelparallel")
WAITING_RECEIVES = 32
"""Inter-op threads if a waiting receive occupies one. A step has one waiting receive at a time."""


def take_cores(group: Group, machines: tuple[str, ...], *, bind: bool) -> int | None:
    """Bind this process to its share of the machine's cores. Collective.

    Args:
        group: All ranks.
        machines: By rank: the machine on which it runs.
        bind: Whether to bind; if False, nothing changes.

    Returns:
        The number of cores to which this process is bound; None if it is not.
    """
    allowed = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()
    offers = group.allgather_objects(allowed, what="exchange of cores")
    neighbors = [rank for rank, machine in enumerate(machines) if machine == machines[group.rank]]
    if not bind or len(neighbors) == 1 or not allowed:
        return None
    own = cores_of(group.rank, {rank: offers[rank] for rank in neighbors})
    if group.rank == neighbors[0] and len(frozenset().union(*(offers[rank] for rank in neighbors))) < len(neighbors):
        _log.warning(
            "smp: %d ranks share %d cores of this machine, so they cannot all run at once: partitions save memory "
            "here, but no time",
            len(neighbors),
            len(frozenset().union(*(offers[rank] for rank in neighbors))),
        )
    _bind(own)
    return len(own)


def cores_of(rank: int, offers: dict[int, frozenset[int]]) -> frozenset[int]:
    """Return the share of one rank, given the cores that each rank of its machine may use.

    Ranks that may use the same cores divide them; if there are fewer cores than ranks, some ranks share a core. A rank
    whose cores differ from those of all others keeps them, because its launcher has bound it already.

    Returns:
        At least one core.
    """
    offered = sorted(offers[rank])
    sharers = [other for other in sorted(offers) if offers[other] == offers[rank]]
    place = sharers.index(rank)
    if len(offered) < len(sharers):
        return frozenset((offered[place % len(offered)],))
    begin, end = (len(offered) * edge // len(sharers) for edge in (place, place + 1))
    return frozenset(offered[begin:end])


def _bind(cores: frozenset[int]) -> None:
    # An affinity set on the process does not apply to threads that already run, so set it on each thread.
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208 -- only the names are needed
        with suppress(ProcessLookupError, PermissionError):
            os.sched_setaffinity(int(thread), cores)


def size_pools(width: int | None, *, receives_occupy_threads: bool) -> None:
    """Size TensorFlow's thread pools, unless the script or TensorFlow's variables have.

    If waiting receives occupy threads, there are threads for the receives of many concurrent steps. With fewer, every
    rank could wait for a step that another rank has no thread to begin.

    Args:
        width: Number of cores of this process; None leaves pools at TensorFlow's sizes.
        receives_occupy_threads: Of the transport.
    """
    threading = tf.config.threading
    inter = max(width or 0, WAITING_RECEIVES) if receives_occupy_threads else width
    try:
        if width and not threading.get_intra_op_parallelism_threads() and "TF_NUM_INTRAOP_THREADS" not in os.environ:
            threading.set_intra_op_parallelism_threads(width)
        if inter and not threading.get_inter_op_parallelism_threads() and "TF_NUM_INTEROP_THREADS" not in os.environ:
            threading.set_inter_op_parallelism_threads(inter)
    except RuntimeError:
        _log.warning(
            "smp: TensorFlow was already initialized before smp.init(), so its thread pools keep their size; call "
            "smp.init() first, or set %sTF_NUM_INTEROP_THREADS=%d",
            f"TF_NUM_INTRAOP_THREADS={width} and " if width else "",
            inter,
        )
