"""Each rank gets a GPU of its own, where the machine has any, so that scripts need not choose one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

__all__ = ["gpu_of", "take_gpu"]

_log = logging.getLogger("smdistributed.modelparallel")


def take_gpu(local_rank: int, local_size: int) -> Any:
    """Show TensorFlow one GPU of those that this process sees.

    Args:
        local_rank: This process, counted on its machine.
        local_size: How many processes of the job run on this machine.

    Returns:
        The GPU; None if there is none, or the script has chosen by `tf.config.set_visible_devices` already.
    """
    all_gpus = tf.config.list_physical_devices("GPU")
    gpu = gpu_of(local_rank, all_gpus)
    if gpu is None or tf.config.get_visible_devices("GPU") != all_gpus:
        return None
    try:
        tf.config.set_visible_devices(gpu, "GPU")
    except RuntimeError:
        _log.warning(
            "smp: TensorFlow was already at work before smp.init(), so it keeps all %d GPUs in each of %d ranks; call "
            "smp.init() first",
            len(all_gpus),
            local_size,
        )
        return None
    # Whoever started the ranks may have given each its own GPU, which is then the only one that it sees.
    if local_rank == 0 and 1 < len(all_gpus) < local_size:
        _log.warning("smp: %d ranks share %d GPUs of this machine", local_size, len(all_gpus))
    return gpu


def gpu_of(local_rank: int, gpus: Sequence[Any]) -> Any:
    """The GPU of one rank among those that its process sees; ranks share where they are more, None if there is none."""
    return gpus[local_rank % len(gpus)] if gpus else None
