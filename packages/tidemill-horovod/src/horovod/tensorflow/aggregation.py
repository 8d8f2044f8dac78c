"""Gradients of several calls, summed on each rank before they are reduced over the ranks."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor, Variable
from horovod.tensorflow.collectives import scaled


class Aggregation:
    """Sums of gradients, and the number of calls that were added.

    Args:
        passes: Number of calls after which the sums are used.
        average: Whether the sums are divided by `passes`.
    """

    def __init__(self, passes: int, *, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._count: Variable | None = None
        self._sums: list[Variable] = []

    def add(
        self, gradients: Sequence[Any], use: Callable[[list[Any]], Any], skip: Callable[[], Any] = lambda: None
    ) -> None:
        """Add gradients, as dense tensors, to the sums, and call `use` with the sums after every `passes` calls.

        Args:
            gradients: One for each variable; None for a variable without a gradient.
            use: Function that gets the sums (or the averages), in the same order; the sums are then reset to zero.
            skip: Function for the other calls.
        """
        dense = [None if one is None else tf.convert_to_tensor(one) for one in gradients]
        counter = self._created(dense)
        with tf.control_dependencies(
            [
                sum_.assign_add(one, read_value=False) if tf.executing_eagerly() else sum_.assign_add(one)
                for sum_, one in zip(self._sums, dense, strict=True)
                if one is not None
            ]
        ):
            count = counter.assign_add(1)
        has_gradient = [one is not None for one in dense]
        tf.cond(
            count >= self._passes,
            lambda: self._flush(counter, has_gradient, use),
            lambda: [tf.constant(False), skip()][0],
        )

    def _flush(self, counter: Variable, has_gradient: Sequence[bool], use: Callable[[list[Any]], Any]) -> Tensor:
        factor = 1.0 / self._passes if self._average else 1.0
        values = [
            scaled(sum_.read_value(), factor) if is_there else None
            for sum_, is_there in zip(self._sums, has_gradient, strict=True)
        ]
        use(values)
        for sum_, is_there in zip(self._sums, has_gradient, strict=True):
            if is_there:
                sum_.assign(tf.zeros_like(sum_))
        counter.assign(0)
        return tf.constant(True)

    def _created(self, gradients: Sequence[Any]) -> Variable:
        """Return the counter, and create it with the sums at the first call."""
        if self._count is not None:
            return self._count
        with tf.init_scope():
            counter: Variable = tf.Variable(0, trainable=False, name="horovod_passes")
            self._sums = [
                tf.Variable(0.0 if one is None else tf.zeros(one.shape, one.dtype), trainable=False)
                for one in gradients
            ]
        self._count = counter
        return counter
