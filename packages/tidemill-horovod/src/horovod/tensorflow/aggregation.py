"""Gradients of several calls, summed on each rank before they are reduced over the ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor, Variable
from horovod.tensorflow.collectives import scaled


class Aggregation:
    """Sums of gradients, and the number of calls that were added.

    A variable may get its first gradient in a later call, except in a `tf.function`: TensorFlow creates variables in
    its first call only.

    Args:
        passes: Number of calls after which the sums are used.
        average: Whether the sums are divided by `passes`.
    """

    def __init__(self, passes: int, *, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._count: Variable | None = None
        self._sums: list[Variable | None] = []
        """None as long as no call had a gradient at this place."""

    def add(
        self, gradients: Sequence[Any], use: Callable[[list[Any]], Any], skip: Callable[[], Any] = lambda: None
    ) -> None:
        """Add gradients, as dense tensors, to the sums, and call `use` with the sums after every `passes` calls.

        Args:
            gradients: One for each variable; None for a variable without a gradient.
            use: Function that gets the sums (or the averages), in the same order, and None where no call had a
                gradient; the sums are then reset to zero.
            skip: Function for the other calls.
        """
        dense = [None if one is None else tf.convert_to_tensor(one) for one in gradients]
        counter = self._created(dense)
        with tf.control_dependencies(
            [
                sum_.assign_add(one, read_value=False) if tf.executing_eagerly() else sum_.assign_add(one)
                for sum_, one in zip(self._sums, dense)
                if sum_ is not None and one is not None
            ]
        ):
            count = counter.assign_add(1)
        tf.cond(
            count >= self._passes,
            lambda: self._flush(counter, use),
            lambda: [tf.constant(False), skip()][0],
        )

    def _flush(self, counter: Variable, use: Callable[[list[Any]], Any]) -> Tensor:
        factor = 1.0 / self._passes if self._average else 1.0
        sums = list(self._sums)
        use([None if sum_ is None else scaled(sum_.read_value(), factor) for sum_ in sums])
        for sum_ in sums:
            if sum_ is not None:
                sum_.assign(tf.zeros_like(sum_))
        counter.assign(0)
        return tf.constant(True)

    def _created(self, gradients: Sequence[Any]) -> Variable:
        """Return the counter, after creating it and the sums that are missing."""
        with tf.init_scope():
            counter = self._count
            if counter is None:
                counter = self._count = tf.Variable(0, trainable=False, name="horovod_passes")
                self._sums = [None for _ in gradients]
            for place, one in enumerate(gradients):
                if one is not None and self._sums[place] is None:
                    self._sums[place] = tf.Variable(tf.zeros(one.shape, one.dtype), trainable=False)
        return counter
