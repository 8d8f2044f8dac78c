"""`smp.register_post_partition_hook`: what the script does once the model is cut, before the first forward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from smdistributed.modelparallel.tensorflow.engine.engine import engine

__all__ = ["register_post_partition_hook"]

F = TypeVar("F", bound=Callable[[], Any])


def register_post_partition_hook(hook: F) -> F:
    """Run `hook` eagerly inside the first `smp.step` call, when each rank holds its part of the model.

    Its use is to load weights. Inside it, values assigned to variables of other ranks are dropped, so that
    `model.load_weights(path)` and `model.set_weights(weights)` work: each rank keeps its part. May be used as a
    decorator. If the model is cut already, the hook runs at once.

    Args:
        hook: A function without arguments.

    Returns:
        The hook.
    """
    engine().after_partition(hook)
    return hook
