"""A gradient tape whose gradients are those of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow.compression import Compression
from horovod.tensorflow.process import size
from horovod.tensorflow.reductions import Average, ReduceOp, Sum, check_compression, grouped_allreduce

__all__ = ["DistributedGradientTape"]


class _DistributedTape(tf.GradientTape):  # type: ignore[misc]
    """Shares everything with the tape that it was made of."""

    def __init__(self, tape: tf.GradientTape, **options: Any) -> None:
        # No super().__init__: the recording goes on, or has ended, in the other tape.
        self.__dict__ = tape.__dict__
        self._horovod = options

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the gradients, reduced over the ranks."""
        gradients = super().gradient(target, sources, *args, **kwargs)
        is_nested = isinstance(gradients, (list, tuple, dict))
        leaves = tf.nest.flatten(gradients) if is_nested else [gradients]
        if self._horovod["sparse_as_dense"]:
            leaves = [tf.convert_to_tensor(leaf) if isinstance(leaf, tf.IndexedSlices) else leaf for leaf in leaves]
        if size() > 1:
            leaves = self._reduced(leaves)
        return tf.nest.pack_sequence_as(gradients, leaves) if is_nested else leaves[0]

    def _reduced(self, leaves: list[Any]) -> list[Any]:
        return grouped_allreduce(
            leaves,
            compression=self._horovod["compression"],
            op=self._horovod["op"],
            prescale_factor=1.0 / self._horovod["predivide"],
            postscale_factor=self._horovod["predivide"],
        )


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
    """Return a tape whose `gradient` reduces the gradients over all ranks.

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

    Raises:
        ValueError: If `op` or `compression` is not allowed, or `gradient_predivide_factor` is 0 or comes with `Sum`.
    """
    del device_dense, device_sparse, num_groups, groups
    check_compression(compression)
    if op not in (Average, Sum):
        raise ValueError(f"hvd.DistributedGradientTape: op is {op!r}; allowed is hvd.Average or hvd.Sum")
    if gradient_predivide_factor != 1.0 and (op is not Average or not gradient_predivide_factor):
        raise ValueError(
            f"hvd.DistributedGradientTape: gradient_predivide_factor is {gradient_predivide_factor!r} with "
            f"op={op.name}; allowed is a number other than 0, with op=hvd.Average"
        )
    return _DistributedTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide=gradient_predivide_factor,
    )
