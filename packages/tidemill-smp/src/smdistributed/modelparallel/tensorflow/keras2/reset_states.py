"""`metric.reset_states()`, which Keras 3 has in the singular."""

from __future__ import annotations

from typing import Any

from smdistributed.modelparallel.tensorflow.keras2.patch import Patch

__all__ = ["patches"]


def patches(keras: Any) -> list[Patch]:
    """The patches for Keras 3."""

    def reset_states(self: Any) -> None:
        """Reset the metric: the name that this had in Keras 2."""
        self.reset_state()

    return [Patch(keras.metrics.Metric, "reset_states", reset_states)]
