"""`import horovod.tensorflow as hvd`: data parallelism by collective operations.

hvd.init()
grads = [hvd.allreduce(grad) for grad in grads]           # the mean over all ranks
hvd.broadcast_variables(model.variables, root_rank=0)
"""

from horovod.tensorflow.communicator import Communicator
from horovod.tensorflow.compression import Compression
from horovod.tensorflow.objects import allgather_object, broadcast_object
from horovod.tensorflow.process import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
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
    shutdown,
    size,
)
from horovod.tensorflow.reductions import (
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allgather,
    allreduce,
    barrier,
    broadcast,
    grouped_allreduce,
)
from horovod.tensorflow.tape import DistributedGradientTape
from horovod.tensorflow.variables import broadcast_variables

__all__ = [
    "Average",
    "Communicator",
    "Compression",
    "DistributedGradientTape",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "grouped_allreduce",
    "init",
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
    "shutdown",
    "size",
]
