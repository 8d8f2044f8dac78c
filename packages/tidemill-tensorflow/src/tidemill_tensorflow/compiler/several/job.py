"""Properties of the job that this process belongs to: other processes, ranks, Horovod, smp."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.protobuf.tensorflow_server_pb2 import ServerDef

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SMP_SIZE")
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SMP_RANK")
_SINCE = {"Horovod": (2, 21), "smp": (2, 21), "tf.distribute": (2, 21)}
"""Oldest TensorFlow on which the steps of several processes are compiled: the oldest one that is tested."""
_Value = TypeVar("_Value")


class Horovod(Protocol):
    """The module ``horovod.tensorflow``, as far as the compiler uses it."""

    Sum: object

    def is_initialized(self) -> bool: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def allreduce(self, tensor: tf.Tensor, *, op: object, name: str) -> tf.Tensor: ...


class SmpGroup(Protocol):
    """Group of ranks of smp."""

    rank: int
    size: int
    ranks: Sequence[int]

    def allgather_objects(self, value: _Value, *, what: str) -> list[_Value]: ...


class ModelParallelism(Protocol):
    """Session of smp: all ranks, those of a replica, and those with the same partition."""

    world_group: SmpGroup
    mp_group: SmpGroup
    dp_group: SmpGroup


class _SessionModule(Protocol):
    def is_initialized(self) -> bool: ...
    def current(self) -> ModelParallelism: ...


def has_several_processes() -> bool:
    """Return whether other processes train the same model.

    They show in the variables of MPI or of tidemill's rank launcher, in ``TF_CONFIG``, in an initialized Horovod or
    smp, or in a strategy's cluster. Replicas of a model would drift apart if their processes ran different variants.
    """
    if any(os.environ.get(name, "").isdigit() and int(os.environ[name]) > 1 for name in _SIZES):
        return True
    session = model_parallelism()
    if session is not None and session.world_group.size > 1:
        return True
    return len(_tasks("TF_CONFIG")) > 1 or horovod() is not None or _strategy_tasks() > 1


def why_plain() -> str | None:
    """Return why the steps of several processes run plain on this TensorFlow, or None if they may be compiled."""
    library = "smp" if model_parallelism() is not None else "Horovod" if horovod() is not None else "tf.distribute"
    since = _SINCE[library]
    if tuple(int(part) for part in tf.__version__.split(".")[:2]) >= since:
        return None
    return (
        f"several processes of {library} are compiled on TensorFlow {since[0]}.{since[1]} and newer, and this is"
        f" {tf.__version__}"
    )


def is_first() -> bool:
    """Return whether this process is rank 0 or the only process. Other ranks adopt the decisions of rank 0."""
    library = horovod()
    if library is not None:
        return library.rank() == 0
    session = model_parallelism()
    if session is not None:
        return session.world_group.rank == 0
    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()]
    if ranks:
        return ranks[0] == "0"
    position = cluster_position()
    return position is None or position[0] == 0


def horovod() -> Horovod | None:
    """Return Horovod's module if the script has initialized Horovod with several ranks, or None."""
    library = cast("Horovod | None", sys.modules.get("horovod.tensorflow"))
    return library if library is not None and library.is_initialized() and library.size() > 1 else None


def model_parallelism() -> ModelParallelism | None:
    """Return smp's session if the script has initialized smp, whose ranks run different graphs; else None."""
    library = cast("_SessionModule | None", sys.modules.get("smdistributed.modelparallel.tensorflow.session"))
    return library.current() if library is not None and library.is_initialized() else None


def _tasks(name: str) -> list[str]:
    try:
        cluster = json.loads(os.environ.get(name, "")).get("cluster", {})
        return [task for tasks in cluster.values() for task in tasks]
    except (ValueError, AttributeError, TypeError):
        return []


def cluster_position() -> tuple[int, int] | None:
    """Return this task's index in TensorFlow's cluster and the number of tasks, or None without a cluster."""
    for server in _servers():
        names = [(job.name, index) for job in server.cluster.job for index in sorted(job.tasks)]
        if len(names) > 1:
            return names.index((server.job_name, server.task_index)), len(names)
    return None


def _strategy_tasks() -> int:
    """Return the number of tasks of the cluster that TensorFlow is connected to; 1 without a cluster."""
    return max((sum(len(job.tasks) for job in server.cluster.job) for server in _servers()), default=1)


def _servers() -> list[ServerDef]:
    module = sys.modules.get("tensorflow.python.eager.context")
    if module is None:
        return []
    context = module.context()
    servers = (context.get_server_def(), getattr(context, "_collective_ops_server_def", None))
    return [each for each in servers if each is not None]
