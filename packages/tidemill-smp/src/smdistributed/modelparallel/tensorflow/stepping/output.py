"""`StepOutput`, the result of a step: one value per microbatch, and methods that combine them.

    grads, loss = forward_backward(x, y)
    grads = [grad.accumulate() for grad in grads]   # the mean over the microbatches
    loss.reduce_mean()

**Means.** The mean over the microbatches equals the value for the whole batch only if that value is itself a mean over
pieces of equal size, such as a mean loss and its gradients.

**None.** The gradient of a variable that another rank holds, or on which the loss does not depend, is None in every
microbatch. Every method then returns None, which `apply_gradients` skips.

**Sparse gradients.** `tf.IndexedSlices` stay sparse. Rows that all microbatches look up regardless of the batch, such
as those of position embeddings, are summed; rows whose indices come from the batch are concatenated. So an optimizer
receives as many rows as from the unpartitioned model, which matters because Keras 3 squares each row separately.

**Sums** are computed sequentially in the order of the microbatches, so that each value can be freed as soon as it is
added, and so that all methods are bit-equal to a plain loop over the microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, NoReturn

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, Tensor, TypeSpec, Variable
from smdistributed.modelparallel.tensorflow.shared_rows import ALL_ROWS, mark_shared_rows, split_rows

METHODS = ("variable", "add_n", "accumulate_n")


class StepOutput(tf.__internal__.CompositeTensor):  # type: ignore[misc]
    """One value per microbatch, as SageMaker's "TensorFlow API" of smp documents it.

    A composite tensor, so that a `tf.function` can accept and return it; `tf.nest` treats it as one leaf.
    """

    def __init__(self, outputs: Sequence[Any], *, shared_rows: int | Tensor = 0) -> None:
        """Create an output from the values of all microbatches.

        Args:
            outputs: One value per microbatch, in order: tensors of one kind (dense, ragged, sparse or
                `tf.IndexedSlices`), or all None.
            shared_rows: For `tf.IndexedSlices`, the number of leading rows that have the same indices in all
                microbatches and are summed: an int, `ALL_ROWS`, or a scalar tensor.

        Raises:
            ValueError: If there are no values.
        """
        if not outputs:
            raise SMPUsageError("a StepOutput needs the value of at least one microbatch, received none")
        self._outputs = list(outputs)
        self._shared_rows = shared_rows

    @property
    def outputs(self) -> list[Any]:
        """The values, ordered by microbatch."""
        return list(self._outputs)

    def reduce_mean(self) -> Any:
        """Return the mean over the microbatches.

        Returns:
            A tensor with the shape and dtype of one microbatch's value; integers are divided as in `tf.reduce_mean`.
            `tf.IndexedSlices` stay sparse. None if the values are None.
        """
        return self._over_pieces(self._mean)

    def reduce_sum(self) -> Any:
        """Return the sum over the microbatches.

        Returns:
            A tensor with the shape and dtype of one microbatch's value. `tf.IndexedSlices` stay sparse. None if the
            values are None.
        """
        return self._over_pieces(self._sum)

    def concat(self) -> Any:
        """Concatenate the values of the microbatches along axis 0.

        Returns:
            A tensor; scalars are stacked into a vector. None if the values are None.
        """
        return self._over_pieces(_concat)

    def merge(self) -> Any:
        """Return the value of the whole batch: the same as `concat`.

        Returns:
            A tensor, concatenated along the batch axis 0; scalars are stacked into a vector. None if the values are
            None.
        """
        return self._over_pieces(_concat)

    def stack(self) -> Any:
        """Stack the values along a new axis 0.

        Returns:
            A tensor whose axis 0 has the size of the number of microbatches. None if the values are None.
        """
        return self._over_pieces(_stack)

    def accumulate(self, method: str = "variable", var: Variable | None = None) -> Any:
        """Return the mean over the microbatches, summed as they arrive.

        All methods are bit-equal. Without `var` none of them needs a variable: in a graph each partial sum reuses the
        memory of the one before, as an accumulator variable would, but does not stay allocated between steps.

        Args:
            method: `variable` (default), `add_n` or `accumulate_n`, the names of SageMaker's library.
            var: If `method` is `variable`, the `tf.Variable` or Keras variable in which to sum, with the shape and
                dtype of one microbatch's value. It contains the mean afterwards. The other methods ignore it.

        Returns:
            The mean. `tf.IndexedSlices` stay sparse without `var`, and become dense with it.

        Raises:
            ValueError: If there is no such method.
        """
        if method not in METHODS:
            allowed = ", ".join(map(repr, METHODS))
            raise ValueError(f"accumulate: method must be one of {allowed}. Received: {method!r}")
        if method == "variable" and var is not None:
            return self._over_pieces(partial(_accumulate_in, _tf_variable(var)))
        return self._over_pieces(self._mean)

    def _mean(self, pieces: list[Any]) -> Any:
        return self._mean_of_slices(pieces) if _all(pieces, tf.IndexedSlices) else _mean(pieces)

    def _sum(self, pieces: list[Any]) -> Any:
        return _sum_of_slices(pieces, self._shared_rows) if _all(pieces, tf.IndexedSlices) else _sum(pieces)

    def _mean_of_slices(self, pieces: list[Any]) -> Gradient:
        total = _sum_of_slices(pieces, self._shared_rows)
        return tf.IndexedSlices(_over(total.values, len(pieces)), total.indices, total.dense_shape)

    @tf.autograph.experimental.do_not_convert  # AutoGraph would convert the calls for each gradient
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
        """Describe the values and the methods that combine them."""
        first = self._outputs[0]
        if first is None:
            held = "None (the value is on another rank, or the loss does not depend on it)"
        else:
            held = f"{type(first).__name__} of {first.dtype.name if hasattr(first.dtype, 'name') else first.dtype}"
            held += f"{first.shape.as_list() if first.shape.rank is not None else ', shape unknown'}"
        count = len(self._outputs)
        return (
            f"<StepOutput: {count} microbatch{'es' if count > 1 else ''}, each {held}; .outputs is the list, "
            ".reduce_mean(), .reduce_sum(), .accumulate(), .concat(), .merge() and .stack() make one tensor of it>"
        )

    def __tf_tensor__(self, dtype: object = None, name: str | None = None) -> NoReturn:
        """Refuse conversion to a tensor, which would be ambiguous: there is one value per microbatch."""
        del dtype, name
        raise TypeError(
            f"a StepOutput holds {len(self._outputs)} values, one per microbatch, and is not a tensor itself: call "
            ".accumulate() on a gradient, .reduce_mean() on a loss, .merge() on predictions, or take .outputs"
        )

    def __iter__(self) -> NoReturn:
        """Refuse iteration, so that unpacking a StepOutput instead of a tuple of them fails."""
        raise TypeError(
            "a StepOutput cannot be iterated over: take .outputs for the values by microbatch (a step that returns a "
            "tuple returns a tuple of StepOutputs)"
        )

    @property
    def _type_spec(self) -> StepOutputSpec:
        specs = tuple(None if value is None else _spec_of(value) for value in self._outputs)
        rows = self._shared_rows
        return StepOutputSpec(specs, rows if isinstance(rows, int) else _spec_of(rows))

    def _shape_invariant_to_type_spec(self, shape: object) -> NoReturn:
        raise NotImplementedError(
            f"a StepOutput has no shape that could be relaxed to {shape}: carry .outputs in the loop"
        )


class StepOutputSpec(tf.TypeSpec):  # type: ignore[misc]
    """The type spec of a `StepOutput`: one spec per value, or None for a None."""

    __slots__ = ("_shared_rows", "_specs")

    def __init__(self, specs: tuple[TypeSpec | None, ...], shared_rows: int | TypeSpec = 0) -> None:
        """Create a spec from those of the microbatches, and the number of shared rows or the spec of its tensor."""
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


def _spec_of(value: Any) -> TypeSpec:
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


def _sum_dense(pieces: list[Tensor]) -> Tensor:
    total = pieces[0]
    for mb, piece in enumerate(pieces[1:]):
        # TensorFlow's graph optimizer fuses chains of Add and AddN ops into one AddN over all microbatches, which would
        # keep all values alive until the last one arrives, and add in another order. It does not fuse across Snapshot,
        # which forwards its input's memory if no other op reads it.
        total = tf.add(total if mb == 0 else tf.raw_ops.Snapshot(input=total), piece)
    return total


def _over(total: Tensor, count: int) -> Tensor:
    # Not a division: the graph optimizer replaces a division by a constant with this multiplication, and eager calls
    # must give the same result. For powers of two both are equal.
    return total if count == 1 else total * tf.constant(1 / count, total.dtype)


def _sum_of_slices(pieces: list[Any], rows: int | Tensor) -> tf.IndexedSlices:
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


def _accumulate_in(variable: Variable, pieces: list[Any]) -> Tensor:
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


def _tf_variable(var: Any) -> Variable:
    if isinstance(var, tf.Variable):
        return var
    if isinstance(getattr(var, "value", None), tf.Variable):
        return var.value
    raise SMPUsageError(f"accumulate: var must be a tf.Variable or a Keras variable. Received: {var!r}")


# --- concatenating and stacking ---------------------------------------------------------------------------------------


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


def _all(pieces: list[Any], kind: type) -> bool:
    return all(isinstance(piece, kind) for piece in pieces)
