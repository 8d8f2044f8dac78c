"""`smp.register_post_partition_hook`: functions that run between partitioning and the first forward pass."""

from collections.abc import Callable
from typing import Any, TypeVar

from smdistributed.modelparallel.tensorflow.engine.engine import engine

F = TypeVar("F", bound=Callable[[], Any])


def register_post_partition_hook(hook: F) -> F:
    """Run `hook` eagerly inside the first `smp.step` call, after the model is partitioned; usable as a decorator.

    Use it to load weights: inside the hook, assignments to variables of other ranks are dropped, so that
    `model.load_weights(path)` and `model.set_weights(weights)` work on every rank, and each rank keeps its part. If the
    model is already partitioned, the hook runs immediately.

    Args:
        hook: A function without arguments.

    Returns:
        `hook` itself.
    """
    engine().after_partition(hook)
    return hook
