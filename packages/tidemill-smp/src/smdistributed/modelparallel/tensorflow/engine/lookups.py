"""Finds the shared rows of sparse gradients: rows of lookups that are the same for every microbatch.

The gradient of an embedding has a row for each looked-up index. If all microbatches look up the same rows, as position
embeddings do, the unpartitioned model has each of these rows once, so they are summed over the microbatches. Rows whose
indices come from the batch are concatenated, as in the unpartitioned model.

Lookups are compared by how their indices are computed, never by values, and one by one: TensorFlow concatenates the
rows of all lookups in a variable. The graph shows whether indices depend on the data. It does not show whether they
depend on a static batch size: `tf.zeros_like(x)` is a constant then. So the step is traced again for a larger batch;
indices that do not depend on the batch are computed equally in both traces.
"""

import hashlib
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, TensorLike
from smdistributed.modelparallel.tensorflow.engine.origins import Origins
from smdistributed.modelparallel.tensorflow.marks import Tracer

log = logging.getLogger("smdistributed.modelparallel")

_HANDING_ON = frozenset({"Cast", "Identity", "Reshape", "StopGradient"})
"""Ops that preserve the order of indices."""


@dataclass(frozen=True)
class SharedRows:
    """A sparse gradient with its shared rows first, and their number."""

    slices: tf.IndexedSlices
    count: int | Tensor | None
    """An int, a scalar tensor of the graph, or None if all rows are shared."""
    origin: str
    """Hash of the computation of the shared indices: equal for equal computations."""


@dataclass(frozen=True)
class _Lookup:
    indices: Tensor
    """The looked-up indices, of any shape."""
    origin: str | None
    """Hash of the computation of the indices; None if they depend on the batch."""

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
    """Find the shared rows of the sparse gradients that a step returns, and move them to the front.

    Args:
        gradients: The leaves that the body of the step returned; leaves other than `tf.IndexedSlices` are skipped.
        origins: Hashes of the step's graph, to which ops may be added.
        state: The tracer of the same trace.
        larger: Traces the step for a larger batch, and returns its leaves and hashes. None if the batch size is not
            static, so that it cannot be a constant of the graph.
        microbatch_sizes: The static sizes of a microbatch, for a guess if that trace fails.

    Returns:
        Shared rows by index of the leaf; gradients without shared rows are omitted.
    """
    found = {
        place: _lookups(leaf, origins) for place, leaf in enumerate(gradients) if isinstance(leaf, tf.IndexedSlices)
    }
    if any(_is_reduced(lookup, origins) for lookups in found.values() for lookup in lookups):
        log.warning(
            "smp: sparse gradients are reduced by Horovod inside the step: rows that all microbatches and replicas "
            "look up, such as position embeddings, are then repeated for each of them, and optimizers of Keras 3 "
            "process each repetition separately. Reduce outside the step: hvd.allreduce(gradient.accumulate())"
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


def _parts(indices: Tensor) -> list[Tensor]:
    op = indices.op
    if op.type in _HANDING_ON:
        return _parts(op.inputs[0])
    if op.type == "ConcatV2" and tf.get_static_value(op.inputs[-1]) == 0:
        return [part for tensor in list(op.inputs)[:-1] for part in _parts(tensor)]
    return [indices]


def _is_reduced(lookup: _Lookup, origins: Origins) -> bool:
    op = lookup.indices.op
    # A collective of several tensors has an output for each input.
    place = lookup.indices.value_index
    is_call = op.type.startswith(("EagerPyFunc", "Horovod", "PyFunc")) and place < len(op.inputs)
    return is_call and origins.of(op.inputs[place]) is not None


def _without_sizes(
    found: dict[int, list[_Lookup]],
    larger: Callable[[], tuple[Sequence[Any], Origins]],
    microbatch_sizes: frozenset[int],
) -> dict[int, list[_Lookup]]:
    """Drop the origins of lookups that differ in the trace for a larger batch."""
    try:
        gradients, origins = larger()
        others = {place: _lookups(gradients[place], origins) for place in found}
        if any(len(others[place]) != len(lookups) for place, lookups in found.items()):
            raise ValueError("it looks up other variables then")
    except Exception as error:  # noqa: BLE001  the script's code may raise any exception
        log.warning(
            "smp: the step was also traced for a larger batch, to find which rows of its embeddings all microbatches "
            "share, and that failed (%s: %.300s). Rows that seem to be shared by their shape are summed over the "
            "microbatches, the others are concatenated; make the body of the step accept batches of any size",
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


def _tensor(size: TensorLike) -> Tensor:
    return tf.convert_to_tensor(size, tf.int32)


@contextmanager
def _next_to(slices: tf.IndexedSlices, state: Tracer) -> Generator[None]:
    """Place the ops created inside this context with the variable of a gradient."""
    graph, handle = slices.indices.graph, _handle_of(slices.indices, state)
    before = len(graph.get_operations())
    with graph.as_default(), tf.name_scope("gradient_of_variable_rows"):
        yield
    if handle is not None:
        state.gradients |= {op.name: handle for op in graph.get_operations()[before:]}


def _handle_of(indices: Tensor, state: Tracer) -> Tensor | None:
    while indices.op.name not in state.gradients:
        if indices.op.type not in _HANDING_ON:
            return None
        indices = indices.op.inputs[0]
    return state.gradients[indices.op.name]
