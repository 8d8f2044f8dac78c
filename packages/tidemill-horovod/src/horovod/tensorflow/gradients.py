"""The reduction of gradients that tapes and optimizers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import Gradient
from horovod.tensorflow.compression import Compressor
from horovod.tensorflow.process import size
from horovod.tensorflow.process_sets import ProcessSet, members_of
from horovod.tensorflow.reductions import Adasum, Average, ReduceOp, Sum, check_compression, reduce_all


@dataclass(frozen=True)
class GradientReduction:
    """Options of the reduction of gradients over the ranks."""

    function: str
    """The public function that was called, for messages."""
    compression: Compressor | type[Compressor]
    sparse_as_dense: bool
    op: ReduceOp
    predivide_factor: float
    process_set: ProcessSet | None
    scale_local_gradients: bool = True

    def reduce(
        self, gradients: Sequence[Gradient | None], *, local: frozenset[int] = frozenset()
    ) -> list[Gradient | None]:
        """Reduce gradients.

        Args:
            gradients: Tensors, `tf.IndexedSlices` and Nones, in the same order on all ranks.
            local: Indices of gradients that are not reduced, because their sources differ between ranks.
        """
        if self.sparse_as_dense:
            gradients = [tf.convert_to_tensor(one) if isinstance(one, tf.IndexedSlices) else one for one in gradients]
        ranks = members_of(self.function, self.process_set)
        count = size() if ranks is None else len(ranks)
        if count == 1:
            return list(gradients)
        reduced = reduce_all(
            [None if place in local else one for place, one in enumerate(gradients)],
            op=self.op,
            compression=self.compression,
            prescale=1.0 / self.predivide_factor,
            postscale=self.predivide_factor,
            label="horovod_gradient",
            ranks=ranks,
            separately=True,
        )
        for place in local:
            one = gradients[place]
            reduced[place] = _divided(one, count) if self.scale_local_gradients else one
        return reduced


def _divided(gradient: Gradient | None, count: int) -> Gradient | None:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(_divided(gradient.values, count), gradient.indices, gradient.dense_shape)
    return None if gradient is None else gradient / tf.cast(count, gradient.dtype)


def check_reduction(reduction: GradientReduction) -> None:
    """Check the options of a reduction.

    Raises:
        ValueError: If `op`, `compression` or `gradient_predivide_factor` is not allowed.
    """
    check_compression(reduction.compression)
    function, op, factor = reduction.function, reduction.op, reduction.predivide_factor
    if op not in (Average, Sum, Adasum):
        raise ValueError(f"hvd.{function}: op is {op!r}; allowed is hvd.Average, hvd.Sum or hvd.Adasum")
    if factor != 1.0 and (op is not Average or not factor):
        raise ValueError(
            f"hvd.{function}: gradient_predivide_factor is {factor!r} with op={op.name}; allowed is a number other "
            "than 0, with op=hvd.Average"
        )
