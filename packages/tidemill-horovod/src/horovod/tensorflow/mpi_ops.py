"""`horovod.tensorflow.mpi_ops`: the names that scripts import from Horovod's module of ops."""

from __future__ import annotations

from horovod.tensorflow import process
from horovod.tensorflow.basics import HorovodBasics
from horovod.tensorflow.gathers import allgather, alltoall, barrier, broadcast, grouped_allgather, join
from horovod.tensorflow.process import *  # noqa: F403 - they are listed there
from horovod.tensorflow.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow.reductions import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    handle_average_backwards_compatibility,
    reducescatter,
)
from horovod.tensorflow.starting import init, shutdown
from horovod.tensorflow.tensors import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from horovod.tensorflow.timeline import start_timeline, stop_timeline
from horovod.tensorflow.variables import broadcast_

__all__ = [  # noqa: PLE0604
    *process.__all__,
    "Adasum",
    "Average",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "global_process_set",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size_op",
    "start_timeline",
    "stop_timeline",
]

_basics = HorovodBasics()
