"""`import horovod.tensorflow as hvd`: data parallelism by collective operations.

hvd.init()
tape = hvd.DistributedGradientTape(tape)                  # the mean of the gradients over all ranks
hvd.broadcast_variables(model.variables, root_rank=0)
"""

from __future__ import annotations

from horovod.tensorflow import elastic
from horovod.tensorflow.communicator import Communicator
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.errors import HorovodInternalError
from horovod.tensorflow.gathers import allgather, alltoall, barrier, broadcast, grouped_allgather, join
from horovod.tensorflow.objects import allgather_object, broadcast_object, broadcast_object_fn
from horovod.tensorflow.optimizers import DistributedOptimizer
from horovod.tensorflow.process import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    gpu_available,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    size,
)
from horovod.tensorflow.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from horovod.tensorflow.reductions import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from horovod.tensorflow.starting import init, shutdown
from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.tensors import local_rank_op, local_size_op, process_set_included_op, rank_op, size_op
from horovod.tensorflow.timeline import start_timeline, stop_timeline
from horovod.tensorflow.variables import (
    BroadcastGlobalVariablesHook,
    broadcast_,
    broadcast_global_variables,
    broadcast_variables,
)

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Communicator",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "ReduceOp",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
