"""`horovod.common.util`: the functions that scripts import from Horovod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from horovod.tensorflow.process import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gpu_available,
    mpi_built,
    nccl_built,
    rocm_built,
)
from horovod.tensorflow.reductions import handle_average_backwards_compatibility

__all__ = [
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "get_average_backwards_compatibility_fun",
    "gloo_built",
    "gpu_available",
    "is_iterable",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "rocm_built",
    "split_list",
]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Return whether a number of ranks is a power of two, as Adasum needs it.

    Args:
        num_rank: Number of ranks.
    """
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], parts: int) -> list[Sequence[Any]]:
    """Divide a list into parts whose lengths differ by at most one.

    Args:
        items: The list.
        parts: Number of parts.

    Returns:
        The parts, the longer ones first.
    """
    length, longer = divmod(len(items), parts)
    ends = [length * part + min(part, longer) for part in range(parts + 1)]
    return [items[begin:end] for begin, end in zip(ends, ends[1:])]


def is_iterable(value: object) -> bool:
    """Return whether a value can be iterated.

    Args:
        value: Anything.
    """
    return isinstance(value, Iterable)


def get_average_backwards_compatibility_fun(reduce_ops: object = None) -> Callable[[Any, bool | None], Any]:
    """Return the function that chooses between `op` and the older argument `average`.

    Args:
        reduce_ops: Without effect: Horovod gets `Average` and `Sum` from it.

    Returns:
        A function of `op` and `average` that returns an op and raises `ValueError` if both are given.
    """
    del reduce_ops
    return handle_average_backwards_compatibility
