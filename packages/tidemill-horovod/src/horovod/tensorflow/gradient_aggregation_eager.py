"""`horovod.tensorflow.gradient_aggregation_eager`: Horovod's class for its own optimizers, which is refused by name."""

from __future__ import annotations

from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper

__all__ = ["LocalGradientAggregationHelperEager"]


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """Refused."""
