"""Assigns each rank its own GPU if the machine has GPUs, so that scripts need not choose one."""

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

_log = logging.getLogger("smdistributed.modelparallel")


def take_gpu(local_rank: int, local_size: int) -> tf.config.PhysicalDevice | None:
    """Make one of this process's GPUs the only one visible to TensorFlow.

    Args:
        local_rank: The rank of this process on its machine.
        local_size: Number of processes of the job on this machine.

    Returns:
        The GPU; None without a GPU, or if the script already called `tf.config.set_visible_devices`.
    """
    all_gpus = tf.config.list_physical_devices("GPU")
    gpu = gpu_of(local_rank, all_gpus)
    if gpu is None or tf.config.get_visible_devices("GPU") != all_gpus:
        return None
    try:
        tf.config.set_visible_devices(gpu, "GPU")
    except RuntimeError:
        _log.warning(
            "smp: TensorFlow was already initialized before smp.init(), so it keeps all %d GPUs in each of %d ranks; "
            "call smp.init() first",
            len(all_gpus),
            local_size,
        )
        return None
    # The launcher may have assigned one GPU to each rank, which then sees no other.
    if local_rank == 0 and 1 < len(all_gpus) < local_size:
        _log.warning("smp: %d ranks share %d GPUs of this machine", local_size, len(all_gpus))
    return gpu


def gpu_of(local_rank: int, gpus: Sequence[Any]) -> tf.config.PhysicalDevice | None:
    """Return the GPU of one rank among those that its process sees; None if none. Surplus ranks share GPUs.

    Args:
        local_rank: From 0.
        gpus: Devices of `tf.config.list_physical_devices`.
    """
    return gpus[local_rank % len(gpus)] if gpus else None
