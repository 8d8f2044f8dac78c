"""A gradient tape whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow.compression import Compression
from horovod.tensorflow.process import size
from horovod.tensorflow.reductions import Average, ReduceOp, grouped_allreduce

__all__ = ["DistributedGradientTape"]


class _DistributedTape(tf.GradientTape):  # type: ignore[misc]
    """Shares everything with the tape that it was made of."""

    def __init__(self, tape: tf.GradientTape, **options: Any) -> None:
        # No super().__init__: the recording goes on, or has ended, in the other tape.
        self.__dict__ = tape.__dict__
        self._horovod = options

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Give the gradients, reduced over the ranks."""
        gradients = super().gradient(target, sources, *args, **kwargs)
        if size() == 1:
            return gradients
        leaves = [gradients] if not isinstance(gradients, (list, tuple, dict)) else tf.nest.flatten(gradients)
        if self._horovod["sparse_as_dense"]:
            leaves = [tf.convert_to_tensor(leaf) if isinstance(leaf, tf.IndexedSlices) else leaf for leaf in leaves]
        reduced = grouped_allreduce(
            leaves,
            compression=self._horovod["compression"],
            op=self._horovod["op"],
            prescale_factor=1.0 / self._horovod["predivide"],
            postscale_factor=self._horovod["predivide"],
        )
        if not isinstance(gradients, (list, tuple, dict)):
            return reduced[0]
        return tf.nest.pack_sequence_as(gradients, reduced)


def DistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
) -> tf.GradientTape:
    """Make a tape's `gradient` reduce what it gives over all ranks.

    Args:
        gradtape: The tape, before or after its recording.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: How floats travel.
        sparse_as_dense: Whether `tf.IndexedSlices` are made dense before.
        op: `Average` or `Sum`.
        gradient_predivide_factor: With `Average`: divide by it before, multiply by it after.
        num_groups: Without effect: gradients of one dtype travel together.
        groups: Without effect.
    """
    del device_dense, device_sparse, num_groups, groups
    return _DistributedTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide=gradient_predivide_factor,
    )
