"""Describes how the inputs of microbatches were split from those of a step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import TypeSpec
from smdistributed.modelparallel.tensorflow.engine.invariance import Feed


@dataclass(frozen=True)
class Batch:
    """The inputs of a step, split into microbatches.

    The methods take the specs of a microbatch's leaves: a `tf.TypeSpec` for each tensor, None for other values.
    """

    feeds: Sequence[Feed]
    """How each leaf was split."""
    num_pieces: int
    """Number of microbatches on all replicas together."""

    def specs_of_whole(self, specs: Sequence[TypeSpec | None]) -> list[TypeSpec | None]:
        """Return the specs of the whole batch of all replicas; specs without a static size are unchanged.

        Args:
            specs: Specs of a microbatch.
        """
        return [_larger(spec, feed, self.num_pieces) for spec, feed in zip(specs, self.feeds, strict=True)]

    def sizes(self, specs: Sequence[TypeSpec | None]) -> frozenset[int]:
        """Return the static batch sizes of a microbatch."""
        pairs = zip(specs, self.feeds, strict=True)
        shapes = [(spec.shape, feed) for spec, feed in pairs if isinstance(spec, tf.TensorSpec)]
        found = {shape[feed] for shape, feed in shapes if shape.rank and isinstance(feed, int)}
        return frozenset(size for size in found if size is not None)

    def feeds_of_components(self, specs: Sequence[TypeSpec | None]) -> Iterator[Feed]:
        """Yield how each component tensor was split: pieces of ragged and sparse tensors differ in length.

        Args:
            specs: Specs of a microbatch; None is skipped.
        """
        for spec, feed in zip(specs, self.feeds, strict=True):
            if spec is None:
                continue
            is_as_leaf = feed == "whole" or isinstance(spec, tf.TensorSpec)
            for _ in tf.nest.flatten(spec, expand_composites=True):
                yield feed if is_as_leaf else "varying sizes"


def _larger(spec: TypeSpec | None, feed: Feed, times: int) -> TypeSpec | None:
    if spec is None or feed == "whole" or not hasattr(spec, "shape") or not spec.shape.rank:
        return spec
    shape, axis = spec.shape.as_list(), feed if isinstance(feed, int) else 0
    if shape[axis] is None:
        return spec
    shape[axis] *= times
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec(shape, spec.dtype)
    return tf.TensorSpec(shape, spec.dtype, getattr(spec, "name", None))
