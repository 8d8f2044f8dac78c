"""Count the values that stateful random ops have drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

__all__ = ["Draws"]


class Draws:
    """State of the stateful random ops of one function.

    TensorFlow's own ops keep their state to themselves. It follows from the number of values that they have drawn.
    """

    def __init__(self) -> None:
        self._drawn: Any = np.int64(0)

    def restart(self) -> None:
        """Start all sequences anew, as a new seed does."""
        self._drawn = np.int64(0)

    def state(self, ops: int, *, later: int = 0) -> tf.Tensor:
        """Return the state before a run.

        Args:
            ops: Number of stateful random ops.
            later: Number of runs between the last counted one and this one, which draw as many values as this one.

        Returns:
            int64 tensor of shape ``(ops + 1,)``: by op, the number of values that it has drawn; then `later`.
        """
        state = np.empty(ops + 1, np.int64)
        state[:ops] = self._drawn
        state[ops] = later
        return tf.constant(state)

    def add(self, sizes: Any, *, runs: int = 1) -> None:
        """Count runs.

        Args:
            sizes: int64 array of shape ``(ops,)``: by op, the number of values that each run drew.
            runs: Number of runs.
        """
        self._drawn = self._drawn + runs * np.asarray(sizes)
