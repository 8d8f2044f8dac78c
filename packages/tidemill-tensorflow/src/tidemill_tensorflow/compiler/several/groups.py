"""Find the group of processes that train one model together, from the ops of a function, and sum over that group."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import tensorflow as tf

from tidemill_tensorflow.compiler.several.job import cluster_position, horovod, model_parallelism

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensorflow.core.framework.node_def_pb2 import NodeDef

    from tidemill_tensorflow.compiler.several.job import Horovod, SmpGroup

_ELASTIC = "HOROVOD_ELASTIC"
_GROUP_KEY = 0x71DE
"""Group key of the compiler's own collectives. The keys of strategies count from 1."""


class ProcessGroup(Protocol):
    """All processes of the job.

    Attributes:
        rank: Rank of this process, from 0.
    """

    rank: int
    size: int

    def sum(self, values: Sequence[int]) -> list[int]:
        """Return the sums over all processes. Every process must make the same calls in the same order."""


def group_of(nodes: Sequence[NodeDef]) -> ProcessGroup | None:
    """Return the group whose processes all run these nodes, which communicate, or None.

    None means that there is no such group, that only a subset of the processes runs the nodes, or that processes may
    join later (elastic Horovod), because a new process would count its meetings from zero.
    """
    if os.environ.get(_ELASTIC) == "1":
        return None
    library = horovod()
    if library is not None and all(_is_of_all_ranks(node, library.size()) for node in nodes):
        return _HorovodGroup(library, library.rank(), library.size())
    position = cluster_position()
    if position is not None and all(node.op.startswith("Collective") for node in nodes):
        return _ClusterGroup(*position)
    return None


def ranks_of_smp(*, averages: bool) -> tuple[int, ...]:
    """Return the ranks that make the same calls of a pipeline of smp. All ranks of the replica must call this.

    These are the ranks of the replica, or all ranks if the function averages gradients over the replicas.

    Args:
        averages: Whether the graph of this rank averages gradients; the graph of another rank may not.
    """
    session = model_parallelism()
    assert session is not None
    replica = session.mp_group
    if session.dp_group.size == 1 or any(replica.allgather_objects(averages, what="the training compiler's ranks")):
        return tuple(session.world_group.ranks)
    return tuple(replica.ranks)


def group_of_smp(ranks: Sequence[int]) -> ProcessGroup:
    """Return the group of ranks from `ranks_of_smp`."""
    session = model_parallelism()
    assert session is not None
    found = next(group for group in (session.world_group, session.mp_group) if tuple(group.ranks) == tuple(ranks))
    return _SmpGroup(found, found.rank, found.size)


def _is_of_all_ranks(node: NodeDef, size: int) -> bool:
    """Return whether all ranks take part in a node, not only a Horovod process set."""
    if not node.op.startswith("Horovod"):
        return False
    if "members" in node.attr:
        return len(node.attr["members"].s.split(b",")) == size
    return "process_set_id" not in node.attr or node.attr["process_set_id"].i == 0


@dataclass
class _HorovodGroup:
    library: Horovod
    rank: int
    size: int
    _sums: int = 0

    def sum(self, values: Sequence[int]) -> list[int]:
        self._sums += 1
        name = f"tidemill.compiler.{self._sums}"
        summed = self.library.allreduce(tf.constant(values, tf.int64), op=self.library.Sum, name=name)
        return [int(value) for value in summed.numpy()]


@dataclass
class _ClusterGroup:
    rank: int
    size: int
    _sums: int = 0

    def sum(self, values: Sequence[int]) -> list[int]:
        self._sums += 1
        with tf.device("/device:CPU:0"):
            summed = tf.raw_ops.CollectiveReduceV2(
                input=tf.constant(values, tf.int64),
                group_size=tf.constant(self.size),
                group_key=tf.constant(_GROUP_KEY),
                instance_key=tf.constant(self._sums),
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
                communication_hint="ring",
            )
        return [int(value) for value in summed.numpy()]


@dataclass
class _SmpGroup:
    ranks: SmpGroup
    rank: int
    size: int

    def sum(self, values: Sequence[int]) -> list[int]:
        gathered = self.ranks.allgather_objects(list(values), what="the training compiler's decision")
        return [sum(column) for column in zip(*gathered)]
