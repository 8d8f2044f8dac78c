"""The class `horovod.common.basics.HorovodBasics`, whose methods are the functions of ranks and builds."""

from __future__ import annotations

from horovod.tensorflow import process, starting, timeline
from horovod.tensorflow.reductions import Adasum, Average, Max, Min, Product, Sum


class HorovodBasics:
    """The functions of `horovod.tensorflow` as methods.

    Args:
        args: Without effect: Horovod finds its native library by them.
    """

    Average = Average
    Sum = Sum
    Adasum = Adasum
    Min = Min
    Max = Max
    Product = Product

    def __init__(self, *args: object) -> None:
        del args

    init = staticmethod(starting.init)
    shutdown = staticmethod(starting.shutdown)
    start_timeline = staticmethod(timeline.start_timeline)
    stop_timeline = staticmethod(timeline.stop_timeline)
    is_initialized = staticmethod(process.is_initialized)
    rank = staticmethod(process.rank)
    size = staticmethod(process.size)
    local_rank = staticmethod(process.local_rank)
    local_size = staticmethod(process.local_size)
    cross_rank = staticmethod(process.cross_rank)
    cross_size = staticmethod(process.cross_size)
    is_homogeneous = staticmethod(process.is_homogeneous)
    mpi_threads_supported = staticmethod(process.mpi_threads_supported)
    mpi_enabled = staticmethod(process.mpi_enabled)
    mpi_built = staticmethod(process.mpi_built)
    gloo_enabled = staticmethod(process.gloo_enabled)
    gloo_built = staticmethod(process.gloo_built)
    nccl_built = staticmethod(process.nccl_built)
    ddl_built = staticmethod(process.ddl_built)
    ccl_built = staticmethod(process.ccl_built)
    cuda_built = staticmethod(process.cuda_built)
    rocm_built = staticmethod(process.rocm_built)
    gpu_available = staticmethod(process.gpu_available)
