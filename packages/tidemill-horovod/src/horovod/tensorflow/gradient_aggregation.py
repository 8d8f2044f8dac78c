"""`horovod.tensorflow.gradient_aggregation`: Horovod's class for its own optimizers, which is refused by name."""

from __future__ import annotations

__all__ = ["LocalGradientAggregationHelper"]


class LocalGradientAggregationHelper:
    """Refused.

    Args:
        args: As in Horovod.
        kwargs: As in Horovod.

    Raises:
        NotImplementedError: Always.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        raise NotImplementedError(
            f"{type(self).__name__} is a part of Horovod's own optimizers; use "
            "hvd.DistributedOptimizer(optimizer, backward_passes_per_step=...)"
        )
