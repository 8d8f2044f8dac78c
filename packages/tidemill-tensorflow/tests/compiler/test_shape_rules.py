"""Shapes that follow from the shapes of inputs: what the rules say against TensorFlow on values that differ."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_tensorflow.compiler.graphs.shape_rules import shapes_follow_from_inputs

# Each step takes the tensors so far, all of rank 2 with 4 columns, and returns one more.
BY_SHAPES: dict[str, Callable[[Any, Any], Any]] = {
    "add rows": lambda a, b: tf.concat([a, b], 0),
    "matmul": lambda a, b: tf.matmul(a, b, transpose_b=True) @ b,
    "softmax": lambda a, b: tf.nn.softmax(a) * tf.reduce_sum(b),
    "reshape": lambda a, b: tf.reshape(tf.reshape(a, [-1]), [tf.shape(a)[0], 4]),
    "tile by rows": lambda a, b: tf.tile(a, [tf.minimum(tf.shape(b)[0], 2), 1]),
    "half": lambda a, b: a[: tf.shape(a)[0] // 2 + 1],
    "pad": lambda a, b: tf.pad(a, [[0, tf.size(b) // 4], [0, 0]])[: tf.shape(a)[0] + 1],
    "range": lambda a, b: tf.gather(a, tf.range(tf.shape(a)[0])),
    "fill": lambda a, b: tf.fill([tf.shape(b)[0], 4], tf.reduce_max(a)),
    "one hot": lambda a, b: tf.one_hot(tf.argmax(a, 1), 4),
    "broadcast": lambda a, b: tf.broadcast_to(a[:1], tf.shape(b)),
    "transpose": lambda a, b: tf.transpose(tf.transpose(a)),
    "top": lambda a, b: tf.math.top_k(a, 4).values,
    "cast of a size": lambda a, b: a[: tf.cast(tf.cast(tf.shape(a)[0], tf.float32), tf.int32)],
    "stack in a loop": lambda a, b: in_loop(a, lambda row: row * 2.0),
}
BY_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "first rows": lambda a, b: a[: tf.cast(a[0, 0], tf.int32)],
    "mask": lambda a, b: tf.boolean_mask(a, a[:, 0] > 1.5),
    "tile by a value": lambda a, b: tf.tile(a, [tf.cast(b[0, 0], tf.int32) + 1, 1]),
    "unique": lambda a, b: tf.repeat(tf.unique(tf.reshape(a, [-1])).y[:, tf.newaxis], 4, 1),
    "range by a value": lambda a, b: tf.repeat(tf.range(a[0, 0] + 1.0)[:, tf.newaxis], 4, 1),
    "fill by a value": lambda a, b: tf.fill([tf.cast(a[0, 0], tf.int32) + 1, 4], 0.0),
    "loop by a value": lambda a, b: pushed(tf.cast(a[0, 0], tf.int32) + 1, b),
    "loop until a value": lambda a, b: pushed_until(a),
}


def in_loop(rows: Any, change: Callable[[Any], Any]) -> Any:
    """Return the rows after a change in a loop over them."""
    given_ = tf.TensorArray(tf.float32, tf.shape(rows)[0], element_shape=[4]).unstack(rows)
    found = tf.TensorArray(tf.float32, tf.shape(rows)[0], element_shape=[4])
    _, found = tf.while_loop(
        lambda i, _: i < tf.shape(rows)[0], lambda i, array: (i + 1, array.write(i, change(given_.read(i)))), (0, found)
    )
    return found.stack()


def pushed(count: Any, rows: Any) -> Any:
    """Return a row as often as a loop runs, from a list that it fills."""
    empty = tf.raw_ops.EmptyTensorList(element_shape=[4], max_num_elements=-1, element_dtype=tf.float32)
    _, filled = tf.while_loop(
        lambda i, _: i < count,
        lambda i, each: (i + 1, tf.raw_ops.TensorListPushBack(input_handle=each, tensor=rows[0])),
        (0, empty),
    )
    return tf.raw_ops.TensorListStack(input_handle=filled, element_shape=[4], element_dtype=tf.float32)


def pushed_until(rows: Any) -> Any:
    """Return ones as often as a list of a loop is long, whose end depends on values."""
    shape = tf.constant([], tf.int32)
    empty = tf.raw_ops.EmptyTensorList(element_shape=shape, max_num_elements=-1, element_dtype=tf.float32)
    _, filled = tf.while_loop(
        lambda value, _: value > 0.5,
        lambda value, each: (value - 1.0, tf.raw_ops.TensorListPushBack(input_handle=each, tensor=value)),
        (rows[0, 0], empty),
    )
    return tf.ones([tf.raw_ops.TensorListLength(input_handle=filled) + 1, 4])


def traced(names: list[tuple[str, int, int]]) -> Any:
    """Return a function of a batch of any size, whose results are all tensors on the way."""

    def steps(batch: Any) -> Any:
        found = [batch]
        for name, one, other in names:
            step = BY_SHAPES.get(name) or BY_VALUES[name]
            found.append(tf.ensure_shape(step(found[one % len(found)], found[other % len(found)]), [None, 4]))
        return found

    function = tf.function(steps, autograph=False, input_signature=[tf.TensorSpec([None, 4])])
    return function.get_concrete_function()


def follows(concrete: Any) -> bool:
    return shapes_follow_from_inputs(concrete.graph.as_graph_def())


def shapes_of(concrete: Any, batch: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(each.shape) for each in concrete(tf.constant(batch, tf.float32))]


BATCHES = [
    [np.full([rows, 4], value) for value in (0.0, 1.0, 3.0)] + [np.arange(4.0 * rows).reshape(rows, 4) % 3]
    for rows in (3, 5)
]


@pytest.mark.parametrize("name", BY_SHAPES)
def test_an_op_whose_result_depends_on_shapes_is_known(name: str) -> None:
    concrete = traced([(name, 0, 0)])
    assert follows(concrete)
    for batches in BATCHES:
        assert len({str(shapes_of(concrete, batch)) for batch in batches}) == 1


@pytest.mark.parametrize("name", BY_VALUES)
def test_an_op_whose_result_depends_on_values_is_no_size(name: str) -> None:
    concrete = traced([(name, 0, 0)])
    assert len({str(shapes_of(concrete, batch)) for batch in BATCHES[0]}) > 1, "its shapes do depend on values"
    assert not follows(concrete)


some_steps = st.tuples(st.sampled_from([*BY_SHAPES, *BY_VALUES]), st.integers(0, 5), st.integers(0, 5))


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from([*BY_SHAPES, *BY_VALUES]), st.integers(0, 5), st.integers(0, 5)),
        min_size=1,
        max_size=4,
    )
)
def test_shapes_that_follow_are_equal_for_all_values(names: list[tuple[str, int, int]]) -> None:
    concrete = traced(names)
    assert follows(concrete) == all(name in BY_SHAPES for name, *_ in names)
    if follows(concrete):
        for batches in BATCHES:
            found = {str(shapes_of(concrete, batch)) for batch in batches}
            assert len(found) == 1, names


@pytest.mark.parametrize("by_value", [False, True])
def test_arguments_of_called_functions_are_sizes_if_they_are_given_sizes(by_value: bool) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([], tf.int32)])
    def first(rows: Any, count: Any) -> Any:
        return rows[:count]

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def outer(batch: Any) -> Any:
        count = tf.cast(batch[0, 0], tf.int32) if by_value else tf.shape(batch)[0] // 2
        return first(batch, count), first(batch, tf.shape(batch)[0])

    assert follows(outer.get_concrete_function()) == (not by_value)


def test_what_a_loop_carries_is_no_size_and_one_unknown_op_is_enough() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def carried(batch: Any) -> Any:
        count = tf.shape(batch)[0]
        for _ in tf.range(2):
            count = count - 1
        return batch[:count]

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def unknown(batch: Any) -> Any:
        return tf.sort(batch, 0) + tf.cast(tf.where(batch > 0.0)[:1, :1], tf.float32)

    assert not follows(carried.get_concrete_function())
    assert not follows(unknown.get_concrete_function())


def test_the_steps_of_these_tests_have_the_ops_that_decide() -> None:
    ops = {
        node.op
        for name in itertools.chain(BY_SHAPES, BY_VALUES)
        for graph in [traced([(name, 0, 0)]).graph.as_graph_def()]
        for node in [*graph.node, *(each for function in graph.library.function for each in function.node_def)]
    }
    deciding = {"Reshape", "Tile", "StridedSlice", "Range", "Fill", "OneHot", "BroadcastTo", "TopKV2", "PadV2", "Pad"}
    assert len(deciding & ops) >= 8
    assert {"TensorListStack", "TensorListPushBack", "TensorListReserve", "TensorListLength", "Where", "Unique"} <= ops
