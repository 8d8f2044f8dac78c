"""What a step returns: one value per microbatch, and the ways to make one of them.

    grads, loss = forward_backward(x, y)
    grads = [grad.accumulate() for grad in grads]   # the mean over the microbatches
    loss.reduce_mean()

**Means.** A mean over microbatches is the value of the whole batch only for what is itself a mean over equal pieces, as
a mean loss and its gradients are.

**None.** The gradient of a variable that another rank holds, or that nothing leads to, is None in every microbatch, and
every method then gives None, which `apply_gradients` passes over.

**Sparse gradients.** `tf.IndexedSlices` stay sparse. Rows that all microbatches look up, whatever the batch, as those
of position embeddings, are added up; rows that are looked up by indices from the batch are concatenated. So an
optimizer gets as many rows as of the model in one piece, which matters to Keras 3: it squares each by itself.

**Sums** are made one after the other, in the order of the microbatches, so that each value can be freed as soon as it
is added, and so that all methods and the plain loop over microbatches agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.shared_rows import ALL_ROWS, mark_shared_rows, split_rows

__all__ = ["StepOutput", "StepOutputSpec"]

METHODS = ("variable", "add_n", "accumulate_n")


class StepOutput(tf.__internal__.CompositeTensor):  # type: ignore[misc]
    """One value per microbatch.

    A composite tensor, so that a `tf.function` can return it and take it; `tf.nest` keeps it whole.
    """

    def __init__(self, outputs: Sequence[Any], *, shared_rows: Any = 0) -> None:
        """Take the values.

        Args:
            outputs: One per microbatch, in order: tensors of one kind (dense, ragged, sparse or `tf.IndexedSlices`), or
                all None.
            shared_rows: Of `tf.IndexedSlices`, how many rows at the beginning have the same indices in all microbatches
                and are added up: an int, `ALL_ROWS`, or a scalar tensor.
        """
        if not outputs:
            raise SMPUsageError("a StepOutput needs the value of at least one microbatch, received none")
        self._outputs = list(outputs)
        self._shared_rows = shared_rows

    @property
    def outputs(self) -> list[Any]:
        """The values, by microbatch."""
        return list(self._outputs)

    def reduce_mean(self) -> Any:
        """Give the mean over the microbatches.

        Returns:
            A tensor of a microbatch's shape and dtype; integers are divided as by `tf.reduce_mean`. `tf.IndexedSlices`
            stay sparse.
        """
        return self._over_pieces(self._mean)

    def reduce_sum(self) -> Any:
        """Give the sum over the microbatches; `tf.IndexedSlices` stay sparse."""
        return self._over_pieces(self._sum)

    def concat(self) -> Any:
        """Give the values behind each other on axis 0; scalars make a vector."""
        return self._over_pieces(_concat)

    def merge(self) -> Any:
        """Give the values of the whole batch: put together on the batch axis, 0; scalars make a vector."""
        return self._over_pieces(_concat)

    def stack(self) -> Any:
        """Give the values along a new axis 0, one entry per microbatch."""
        return self._over_pieces(_stack)

    def accumulate(self, method: str = "variable", var: Any = None) -> Any:
        """Give the mean over the microbatches, summed up as they come.

        All methods give the same value to the last bit. Without `var` no method needs a variable: in a graph each sum
        takes the place of the one before, which is what an accumulating variable would do, without its memory staying
        allocated between the steps.

        Args:
            method: `variable`, `add_n` or `accumulate_n`.
            var: With `variable`: the `tf.Variable` (or Keras variable) to sum up in, of a microbatch's shape and dtype.
                It holds the mean afterwards. Ignored by the other methods.

        Returns:
            The mean. `tf.IndexedSlices` stay sparse without `var` and become dense in it.

        Raises:
            ValueError: If there is no such method.
        """
        if method not in METHODS:
            allowed = ", ".join(map(repr, METHODS))
            raise ValueError(f"accumulate: method must be one of {allowed}. Received: {method!r}")
        if method == "variable" and var is not None:
            return self._over_pieces(lambda pieces: _accumulate_in(_tf_variable(var), pieces))
        return self._over_pieces(self._mean)

    def _mean(self, pieces: list[Any]) -> Any:
        return self._mean_of_slices(pieces) if _all(pieces, tf.IndexedSlices) else _mean(pieces)

    def _sum(self, pieces: list[Any]) -> Any:
        return _sum_of_slices(pieces, self._shared_rows) if _all(pieces, tf.IndexedSlices) else _sum(pieces)

    def _mean_of_slices(self, pieces: list[Any]) -> Any:
        total = _sum_of_slices(pieces, self._shared_rows)
        return tf.IndexedSlices(_over(total.values, len(pieces)), total.indices, total.dense_shape)

    def _over_pieces(self, combine: Callable[[list[Any]], Any]) -> Any:
        missing = [mb for mb, value in enumerate(self._outputs) if value is None]
        if len(missing) == len(self._outputs):
            return None
        if missing:
            raise SMPUsageError(
                f"this output of the step is None in microbatches {missing} of {len(self._outputs)} and a tensor in "
                "the others: return a tensor in each, such as tf.zeros_like(variable) for a missing gradient"
            )
        return combine(self._outputs)

    def __repr__(self) -> str:
        """Say what it holds and how to get at it."""
        first = self._outputs[0]
        if first is None:
            held = "None (the value lives on another rank, or nothing leads to it)"
        else:
            held = f"{type(first).__name__} of {first.dtype.name if hasattr(first.dtype, 'name') else first.dtype}"
            held += f"{first.shape.as_list() if first.shape.rank is not None else ', shape unknown'}"
        count = len(self._outputs)
        return (
            f"<StepOutput: {count} microbatch{'es' if count > 1 else ''}, each {held}; .outputs is the list, "
            ".reduce_mean(), .reduce_sum(), .accumulate(), .concat(), .merge() and .stack() make one tensor of it>"
        )

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        """Refuse to be taken for a tensor: which of the values would it be?"""
        del dtype, name
        raise TypeError(
            f"a StepOutput holds {len(self._outputs)} values, one per microbatch, and is no tensor itself: call "
            ".accumulate() on a gradient, .reduce_mean() on a loss, .merge() on predictions, or take .outputs"
        )

    def __iter__(self) -> Any:
        """Refuse to be unpacked in place of what it was returned in."""
        raise TypeError(
            "a StepOutput cannot be iterated over: take .outputs for the values by microbatch (a step that returns a "
            "tuple returns a tuple of StepOutputs)"
        )

    @property
    def _type_spec(self) -> StepOutputSpec:
        specs = tuple(None if value is None else _spec_of(value) for value in self._outputs)
        is_known = isinstance(self._shared_rows, int)
        return StepOutputSpec(specs, self._shared_rows if is_known else _spec_of(self._shared_rows))

    def _shape_invariant_to_type_spec(self, shape: Any) -> Any:
        raise NotImplementedError(
            f"a StepOutput has no shape of its own to relax to {shape}: carry .outputs in the loop"
        )


class StepOutputSpec(tf.TypeSpec):  # type: ignore[misc]
    """The spec of a `StepOutput`: those of its values; None where there is none."""

    __slots__ = ("_shared_rows", "_specs")

    def __init__(self, specs: tuple[Any, ...], shared_rows: Any = 0) -> None:
        """Take the specs by microbatch, and the number of shared rows or the spec of the tensor that tells it."""
        self._specs = tuple(specs)
        self._shared_rows = shared_rows

    @property
    def value_type(self) -> type:
        """`StepOutput`."""
        return StepOutput

    def _serialize(self) -> tuple[Any, ...]:
        return self._specs, self._shared_rows

    @property
    def _component_specs(self) -> list[Any]:
        counts = [] if isinstance(self._shared_rows, int) else [self._shared_rows]
        return [*(spec for spec in self._specs if spec is not None), *counts]

    def _to_components(self, value: StepOutput) -> list[Any]:
        counts = [] if isinstance(self._shared_rows, int) else [value._shared_rows]
        held = [tf.convert_to_tensor(v) if isinstance(v, tf.Variable) else v for v in value.outputs if v is not None]
        return held + counts

    def _from_components(self, components: Sequence[Any]) -> StepOutput:
        left = iter(components)
        outputs = [None if spec is None else next(left) for spec in self._specs]
        return StepOutput(outputs, shared_rows=self._shared_rows if isinstance(self._shared_rows, int) else next(left))


def _spec_of(value: Any) -> Any:
    if isinstance(value, tf.__internal__.CompositeTensor) and not isinstance(value, tf.Variable):
        return tf.type_spec_from_value(value)
    return tf.TensorSpec(value.shape, value.dtype)


# --- sums and means ---------------------------------------------------------------------------------------------------


def _mean(pieces: list[Any]) -> Any:
    first = pieces[0]
    if isinstance(first, tf.SparseTensor):
        together = _sum(pieces)
        return together.with_values(_over(together.values, len(pieces)))
    if first.dtype.is_integer and not isinstance(first, (tf.IndexedSlices, tf.RaggedTensor)):
        return tf.reduce_mean(tf.stack(pieces), axis=0)
    return _over(_sum(pieces), len(pieces))


def _sum(pieces: list[Any]) -> Any:
    if _all(pieces, tf.SparseTensor):
        return reduce(tf.sparse.add, pieces)
    if _all(pieces, tf.RaggedTensor):
        return reduce(tf.add, pieces)
    return _sum_dense([tf.convert_to_tensor(piece) for piece in pieces])


def _sum_dense(pieces: list[Any]) -> Any:
    total = pieces[0]
    for mb, piece in enumerate(pieces[1:]):
        # TensorFlow's graph optimizer melts chains of additions, AddN ones too, into one AddN over all microbatches. It
        # would keep all of them alive until the last has come, and add in another order. It does not see through
        # Snapshot, which hands its input's memory on where nobody else reads it.
        total = tf.add(total if mb == 0 else tf.raw_ops.Snapshot(input=total), piece)
    return total


def _over(total: Any, count: int) -> Any:
    # Not a division: in graphs the optimizer makes this multiplication of a division by a constant, and eager calls are
    # to give the same. For powers of two there is no difference.
    return total if count == 1 else total * tf.constant(1 / count, total.dtype)


def _sum_of_slices(pieces: list[Any], rows: Any) -> tf.IndexedSlices:
    if len(pieces) == 1:
        return mark_shared_rows(pieces[0], rows)
    values, indices = [piece.values for piece in pieces], [piece.indices for piece in pieces]
    if isinstance(rows, int) and rows == ALL_ROWS:
        parts = _sum_dense(values), indices[0]
    elif isinstance(rows, int) and rows == 0:
        parts = tf.concat(values, axis=0), tf.concat(indices, axis=0)
    else:
        heads, tails = zip(*(split_rows(part, rows) for part in values), strict=True)
        shared, others = zip(*(split_rows(part, rows) for part in indices), strict=True)
        parts = tf.concat([_sum_dense(list(heads)), *tails], axis=0), tf.concat([shared[0], *others], axis=0)
    return mark_shared_rows(tf.IndexedSlices(*parts, pieces[0].dense_shape), rows)


def _accumulate_in(variable: Any, pieces: list[Any]) -> Any:
    if _all(pieces, tf.IndexedSlices):
        variable.assign(tf.zeros_like(variable))
        for piece in pieces:
            variable.scatter_add(piece)
    elif pieces[0].dtype.is_integer:
        # Integers are rounded once, at the end, by reduce_mean's division.
        variable.assign(_mean(pieces))
        return variable.read_value()
    else:
        variable.assign(tf.convert_to_tensor(pieces[0]))
        for piece in pieces[1:]:
            variable.assign_add(tf.convert_to_tensor(piece))
    variable.assign(_over(variable.read_value(), len(pieces)))
    return variable.read_value()


def _tf_variable(var: Any) -> Any:
    if isinstance(var, tf.Variable):
        return var
    if isinstance(getattr(var, "value", None), tf.Variable):
        return var.value
    raise SMPUsageError(f"accumulate: var must be a tf.Variable or a Keras variable. Received: {var!r}")


# --- put together -----------------------------------------------------------------------------------------------------


def _concat(pieces: list[Any]) -> Any:
    if _all(pieces, tf.SparseTensor):
        return tf.sparse.concat(0, pieces, expand_nonconcat_dims=True)
    if _all(pieces, tf.RaggedTensor):
        return tf.concat(pieces, axis=0)
    dense = [tf.convert_to_tensor(piece) for piece in pieces]
    ranks = {piece.shape.rank for piece in dense} - {None}
    if not ranks:
        return tf.cond(tf.equal(tf.rank(dense[0]), 0), lambda: tf.stack(dense), lambda: tf.concat(dense, axis=0))
    return tf.stack(dense) if ranks == {0} else tf.concat(dense, axis=0)


def _stack(pieces: list[Any]) -> Any:
    if _all(pieces, tf.SparseTensor):
        rows = [tf.sparse.expand_dims(piece, 0) for piece in pieces]
        return tf.sparse.concat(0, rows, expand_nonconcat_dims=True)
    if _all(pieces, tf.RaggedTensor):
        return tf.stack(pieces)
    return tf.stack([tf.convert_to_tensor(piece) for piece in pieces])


def _all(pieces: list[Any], kind: Any) -> bool:
    return all(isinstance(piece, kind) for piece in pieces)
