"""Batch normalization with the mean and variance of the batches of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Tensor
from horovod.tensorflow.collectives import CollectiveKind, run
from horovod.tensorflow.keras_versions import is_keras_3_class
from horovod.tensorflow.process import is_initialized, size
from horovod.tensorflow.process_sets import ProcessSet, global_process_set, members_of, registered

__all__ = ["SyncBatchNormalization"]

_Base: Any = tf.keras.layers.BatchNormalization
_IS_KERAS_3 = is_keras_3_class(_Base)


class SyncBatchNormalization(_Base):  # type: ignore[misc]
    """`tf.keras.layers.BatchNormalization` whose mean and variance, in training, cover the batches of all ranks.

    Batches may differ in size between ranks. The arguments are those of `BatchNormalization`, except for `renorm`,
    `virtual_batch_size` and `synchronized`, which are refused.

    Args:
        process_set: The ranks whose batches count, among them this rank; or their numbers, as in the layer's config. It
            must be registered before the first batch. Default: all ranks.
        kwargs: Arguments of `BatchNormalization`.

    Raises:
        ValueError: If `renorm`, `virtual_batch_size` or `synchronized` is given, or `process_set` is no set of ranks.
    """

    def __init__(
        self, *, process_set: ProcessSet | Sequence[int] | None = None, **kwargs: bool | float | str | None
    ) -> None:
        for name in ("renorm", "virtual_batch_size", "synchronized", "fused"):
            if kwargs.get(name):
                raise ValueError(f"hvd.SyncBatchNormalization: {name} is {kwargs[name]!r}; leave it out")
        for name in ("synchronized", "fused"):
            kwargs.pop(name, None)
        if not _IS_KERAS_3:
            kwargs["fused"] = False  # the fused op computes the moments of this rank only
        super().__init__(**kwargs)
        self.supports_jit = False
        if process_set is not None and not isinstance(process_set, ProcessSet):
            process_set = ProcessSet(process_set)
        self.process_set = None if process_set is global_process_set else process_set

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of an equal layer.

        Returns:
            The arguments of Keras's layer; a process set as the numbers of its ranks.
        """
        config: dict[str, Any] = super().get_config()
        return config if self.process_set is None else {**config, "process_set": list(self.process_set.ranks)}

    def _moments(self, inputs: Tensor, *args: Tensor | None, **kwargs: Tensor | None) -> tuple[Tensor, Tensor]:
        """The method of Keras 3, which has the mask; in Keras 2 the method calls `_calculate_mean_and_var`."""
        if not self._has_others() or not _IS_KERAS_3:
            return super()._moments(inputs, *args, **kwargs)
        mask = args[0] if args else kwargs["mask"]
        return _moments_of_all(inputs, self._reduction_axes, mask, keep_dims=False, ranks=self._ranks())

    def _calculate_mean_and_var(
        self, inputs: Tensor, reduction_axes: Sequence[int], keep_dims: bool, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The method of Keras 2."""
        if not self._has_others():
            return super()._calculate_mean_and_var(inputs, reduction_axes, keep_dims, mask=mask)
        return _moments_of_all(inputs, reduction_axes, mask, keep_dims=keep_dims, ranks=self._ranks())

    def _ranks(self) -> Sequence[int] | None:
        """Return the ranks whose batches count; None for all."""
        return members_of("SyncBatchNormalization", self.process_set and registered(self.process_set))

    def _has_others(self) -> bool:
        if not is_initialized():
            return False
        ranks = self._ranks()
        return (size() if ranks is None else len(ranks)) > 1


def _moments_of_all(
    inputs: Tensor, axes: Sequence[int], mask: Tensor | None, *, keep_dims: bool, ranks: Sequence[int] | None
) -> tuple[Tensor, Tensor]:
    wide = tf.cast(inputs, tf.float32) if inputs.dtype.size < 4 else inputs
    axes = list(axes)
    weights = tf.ones_like(wide) if mask is None else tf.cast(tf.expand_dims(mask, -1), wide.dtype) + 0 * wide
    counts = tf.reduce_sum(weights, axes, keepdims=True)
    means = tf.reduce_sum(wide * weights, axes, keepdims=True) / tf.maximum(counts, 1)
    deviations = tf.reduce_sum(tf.square(wide - means) * weights, axes, keepdims=True)
    # A mean far from 0 leaves few digits of float32 for the variance, so the sums over the ranks are of float64.
    counts, means, deviations = (tf.cast(each, tf.float64) for each in (counts, means, deviations))
    packed = tf.stack([means * counts, deviations + tf.square(means) * counts, counts])
    (total,) = run(CollectiveKind.ALLREDUCE, [packed], label="horovod_sync_batch_norm", ranks=ranks)
    total_sums, total_squares, total_counts = tf.unstack(total)
    mean = total_sums / tf.maximum(total_counts, 1)
    variance = tf.maximum(total_squares / tf.maximum(total_counts, 1) - mean * mean, 0)
    if not keep_dims:
        mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
    return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)
