"""Tell which rows of a sparse gradient belong to lookups that are the same for every microbatch.

The gradient of an embedding has a row for each index that was looked up. Where all microbatches look up the same rows,
as position embeddings do, the model in one piece has each of these rows once: they are added up over the microbatches.
Rows of indices that come from the batch are concatenated, as there.

It goes by where indices come from, never by their values, and by each lookup: TensorFlow concatenates the rows of all
lookups in one variable. That indices do not depend on the data is seen in the graph. That they do not depend on the
size of the batch is not, if that size is known when the step is traced: `tf.zeros_like(x)` is a constant then. So the
step is traced once more, for a larger batch; indices that do not depend on the batch are computed alike there.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.engine.origins import Origins
from smdistributed.modelparallel.tensorflow.marks import Tracer

__all__ = ["SharedRows", "shared_rows_of"]

log = logging.getLogger("smdistributed.modelparallel")

_HANDING_ON = frozenset({"Cast", "Identity", "Reshape", "StopGradient"})
"""Ops that keep the order of indices."""


@dataclass(frozen=True)
class SharedRows:
    """A sparse gradient whose rows of lookups that all microbatches share come first, and how many those are."""

    slices: tf.IndexedSlices
    count: Any
    """An int, a scalar tensor of the graph, or None if all rows are shared."""
    origin: str
    """How the shared indices are computed: equal for equal computations."""


@dataclass(frozen=True)
class _Lookup:
    indices: Any
    """What was looked up, of any shape."""
    origin: str | None
    """How the indices are computed; None if they depend on the batch."""

    @property
    def size(self) -> int | None:
        size: int | None = self.indices.shape.num_elements()
        return size


def shared_rows_of(
    gradients: Sequence[Any],
    origins: Origins,
    *,
    state: Tracer,
    larger: Callable[[], tuple[Sequence[Any], Origins]] | None,
    microbatch_sizes: frozenset[int],
) -> dict[int, SharedRows]:
    """Find the shared rows of the sparse gradients that a step returns, and put them first.

    Args:
        gradients: The leaves that the body of the step returned. Those that are no `tf.IndexedSlices` are passed over.
        origins: Of the graph of the step, to which ops may be added.
        state: Of the same trace.
        larger: Traces the step for a larger batch, and gives the same of it. None if no size of the batch is known, so
            that no size can be a constant of the graph.
        microbatch_sizes: The sizes of a microbatch, for a guess if that fails.

    Returns:
        By place among the leaves; nothing for gradients without such rows.
    """
    found = {
        place: _lookups(leaf, origins) for place, leaf in enumerate(gradients) if isinstance(leaf, tf.IndexedSlices)
    }
    if any(_is_reduced(lookup, origins) for lookups in found.values() for lookup in lookups):
        log.warning(
            "smp: sparse gradients are reduced by Horovod inside the step: rows that all microbatches and replicas "
            "look up, as of position embeddings, are then repeated for each of them, and optimizers of Keras 3 take "
            "each by itself. Reduce outside the step: hvd.allreduce(gradient.accumulate())"
        )
    found = {place: lookups for place, lookups in found.items() if any(lookup.origin for lookup in lookups)}
    if found and larger is not None:
        found = _without_sizes(found, larger, microbatch_sizes)
    return {
        place: _shared_first(gradients[place], lookups, state)
        for place, lookups in found.items()
        if any(lookup.origin for lookup in lookups)
    }


# --- lookups ----------------------------------------------------------------------------------------------------------


def _lookups(slices: tf.IndexedSlices, origins: Origins) -> list[_Lookup]:
    return [_Lookup(tensor, origins.of(tensor)) for tensor in _parts(slices.indices)]


def _parts(indices: Any) -> list[Any]:
    op = indices.op
    if op.type in _HANDING_ON:
        return _parts(op.inputs[0])
    if op.type == "ConcatV2" and tf.get_static_value(op.inputs[-1]) == 0:
        return [part for tensor in list(op.inputs)[:-1] for part in _parts(tensor)]
    return [indices]


def _is_reduced(lookup: _Lookup, origins: Origins) -> bool:
    op = lookup.indices.op
    is_call = op.type.startswith(("EagerPyFunc", "Horovod", "PyFunc")) and len(op.inputs) > 0
    return is_call and origins.of(op.inputs[0]) is not None


def _without_sizes(
    found: dict[int, list[_Lookup]],
    larger: Callable[[], tuple[Sequence[Any], Origins]],
    microbatch_sizes: frozenset[int],
) -> dict[int, list[_Lookup]]:
    """Forget the origins of lookups that are others with a larger batch."""
    try:
        gradients, origins = larger()
        others = {place: _lookups(gradients[place], origins) for place in found}
        if any(len(others[place]) != len(lookups) for place, lookups in found.items()):
            raise ValueError("it looks up other variables then")
    except Exception as error:  # noqa: BLE001  whatever a script's own code may raise
        log.warning(
            "smp: the step was traced for a larger batch as well, to see which rows of its embeddings all microbatches "
            "share, and that failed (%s: %.300s). Rows that seem to be shared by their shape are added up over the "
            "microbatches, the others are concatenated; let the body of the step take batches of any size",
            type(error).__name__,
            error,
        )
        return {
            place: [replace(one, origin=None) if _has_size(one, microbatch_sizes) else one for one in lookups]
            for place, lookups in found.items()
        }
    return {
        place: [
            one if one.origin == other.origin else replace(one, origin=None)
            for one, other in zip(lookups, others[place], strict=True)
        ]
        for place, lookups in found.items()
    }


def _has_size(lookup: _Lookup, sizes: frozenset[int]) -> bool:
    shape = lookup.indices.shape
    return shape.rank is None or (shape.rank > 1 and shape[0] in sizes)


# --- rows -------------------------------------------------------------------------------------------------------------


def _shared_first(slices: tf.IndexedSlices, lookups: Sequence[_Lookup], state: Tracer) -> SharedRows:
    origins = [lookup.origin for lookup in lookups if lookup.origin]
    origin = hashlib.sha256(" ".join(origins).encode()).hexdigest()
    if len(origins) == len(lookups):
        return SharedRows(slices, None, origin)
    with _next_to(slices, state):
        sizes = [tf.size(one.indices) if one.size is None else one.size for one in lookups]
        ordered = [
            tf.concat(_sorted(tf.split(part, sizes), lookups), axis=0) for part in (slices.values, slices.indices)
        ]
        shared = [size for size, lookup in zip(sizes, lookups, strict=True) if lookup.origin]
        count = sum(shared) if all(isinstance(size, int) for size in shared) else tf.add_n(list(map(_tensor, shared)))
    return SharedRows(tf.IndexedSlices(*ordered, slices.dense_shape), count, origin)


def _sorted(parts: Sequence[Any], lookups: Sequence[_Lookup]) -> list[Any]:
    pairs = list(zip(parts, lookups, strict=True))
    return [part for part, one in pairs if one.origin] + [part for part, one in pairs if not one.origin]


def _tensor(size: Any) -> Any:
    return tf.convert_to_tensor(size, tf.int32)


@contextmanager
def _next_to(slices: tf.IndexedSlices, state: Tracer) -> Iterator[None]:
    """Put the ops created inside where the variable of a gradient is."""
    graph, handle = slices.indices.graph, _handle_of(slices.indices, state)
    before = len(graph.get_operations())
    with graph.as_default(), tf.name_scope("gradient_of_variable_rows"):
        yield
    if handle is not None:
        state.gradients |= {op.name: handle for op in graph.get_operations()[before:]}


def _handle_of(indices: Any, state: Tracer) -> Any:
    while indices.op.name not in state.gradients:
        if indices.op.type not in _HANDING_ON:
            return None
        indices = indices.op.inputs[0]
    return state.gradients[indices.op.name]
