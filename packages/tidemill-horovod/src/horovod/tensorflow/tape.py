"""A gradient tape that reduces gradients over all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import KerasLayer, Tensor, Variable
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradients import GradientReduction, check_reduction
from horovod.tensorflow.process_sets import ProcessSet
from horovod.tensorflow.reductions import Average, ReduceOp


class _DistributedTape(tf.GradientTape):  # type: ignore[misc]
    """Shares the state of the tape that it was created from."""

    def __init__(self, tape: tf.GradientTape, reduction: GradientReduction, local: list[Variable | Tensor]) -> None:
        # No super().__init__: the other tape records, or has recorded.
        self.__dict__ = tape.__dict__
        self._horovod = reduction, local

    def register_local_source(self, source: Variable | Tensor) -> None:
        """Do not reduce the gradient of a source; divide it by the number of ranks (unless `scale_local_gradients` is
        False)."""
        self._horovod[1].append(source)

    def gradient(
        self, target: object, sources: object, *args: object, use_generic_names: bool = False, **kwargs: object
    ) -> Any:
        """Return the gradients, reduced over the ranks.

        Args:
            target: As for `tf.GradientTape`.
            sources: As for `tf.GradientTape`.
            args: As for `tf.GradientTape`.
            use_generic_names: Without effect: ranks match gradients by their places, not by the names of variables.
            kwargs: As for `tf.GradientTape`.
        """
        del use_generic_names
        gradients = super().gradient(target, sources, *args, **kwargs)
        reduction, local = self._horovod
        is_nested = isinstance(gradients, (list, tuple, dict))
        leaves = tf.nest.flatten(gradients) if is_nested else [gradients]
        places = {
            place
            for place, source in enumerate(tf.nest.flatten(sources) if is_nested else [sources])
            if any(source is one or getattr(one, "value", None) is source for one in local)
        }
        leaves = reduction.reduce(leaves, local=frozenset(places))
        return tf.nest.pack_sequence_as(gradients, leaves) if is_nested else leaves[0]


def DistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: object = None,
    process_set: ProcessSet | None = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Return a tape whose `gradient` reduces the gradients over all ranks.

    Args:
        gradtape: The tape, before or after its recording.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: `Compression.none` (the default) or `Compression.fp16`.
        sparse_as_dense: Whether to convert `tf.IndexedSlices` to dense tensors before the reduction.
        op: `Average` (the default), `Sum` or `Adasum`.
        gradient_predivide_factor: With `Average`: divisor before the sum and factor after it.
        num_groups: Without effect: gradients that are ready together are sent together.
        groups: Without effect.
        process_set: The ranks that take part. Default: all ranks.
        scale_local_gradients: Whether to divide the gradients of `register_local_source` by the number of ranks.

    Returns:
        A tape that shares the recording of `gradtape`.

    Raises:
        ValueError: If `op` or `compression` is not allowed, or `gradient_predivide_factor` is 0 or given with `Sum`.
    """
    del device_dense, device_sparse, num_groups, groups
    reduction = GradientReduction(
        "DistributedGradientTape",
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        process_set,
        scale_local_gradients,
    )
    check_reduction(reduction)
    return _DistributedTape(gradtape, reduction, [])


def PartialDistributedGradientTape(  # noqa: N802
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Compressor | type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: object = None,
    process_set: ProcessSet | None = None,
    local_layers: KerasLayer | Iterable[KerasLayer] | None = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """Return a `DistributedGradientTape` that does not reduce the gradients of some layers.

    Args:
        gradtape: As for `DistributedGradientTape`.
        device_dense: Without effect.
        device_sparse: Without effect.
        compression: As for `DistributedGradientTape`.
        sparse_as_dense: As for `DistributedGradientTape`.
        op: As for `DistributedGradientTape`.
        gradient_predivide_factor: As for `DistributedGradientTape`.
        num_groups: Without effect.
        groups: Without effect.
        process_set: As for `DistributedGradientTape`.
        local_layers: One or several Keras layers whose variables differ between ranks.
        scale_local_gradients: Whether to divide the gradients of `local_layers` by the number of ranks.

    Returns:
        A tape that shares the recording of `gradtape`.
    """
    del device_dense, device_sparse, num_groups, groups
    tape = DistributedGradientTape(
        gradtape,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for layer in tf.nest.flatten([] if local_layers is None else local_layers):
        for variable in layer.trainable_variables:
            tape.register_local_source(variable)
    return tape
