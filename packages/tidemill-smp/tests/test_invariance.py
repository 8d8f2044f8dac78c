"""Which tensors are found to be equal in all microbatches of a step, and which do not depend on the batch at all."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import func_graph

from smdistributed.modelparallel.tensorflow.engine.invariance import invariance_of
from smdistributed.modelparallel.tensorflow.engine.nodes import read_nodes

pytestmark = pytest.mark.smp_first

TABLE, COUNTER = tf.Variable(tf.zeros([7, 3])), tf.Variable(0)
PLACES = tf.constant([2, 0, 1])
FEEDS: dict[str, Any] = {"x": 0, "by_time": 1, "whole": "whole", "ragged": "varying sizes"}
"""Each of shape [None, None]."""

Form = Callable[[Any, Any, Any, Any], Any]
INDEPENDENT: dict[str, Form] = {
    "a constant": lambda x, by_time, whole, ragged: tf.range(3),
    "a captured tensor": lambda x, by_time, whole, ragged: PLACES + 0,
    "a weight": lambda x, by_time, whole, ragged: tf.cast(TABLE[0], tf.int32),
    "an input that is not cut": lambda x, by_time, whole, ragged: whole + 1,
    "positions": lambda x, by_time, whole, ragged: tf.range(tf.shape(x)[1]),
    "positions counted from the end": lambda x, by_time, whole, ragged: tf.range(tf.shape(x)[-1]),
    "positions of all sizes but one": lambda x, by_time, whole, ragged: tf.range(tf.reduce_prod(tf.shape(x)[1:])),
    "positions of a size taken apart": lambda x, by_time, whole, ragged: tf.range(tf.unstack(tf.shape(x))[1]),
    "positions of a size gathered": lambda x, by_time, whole, ragged: tf.range(tf.gather(tf.shape(x), 1)),
    "positions of a size put together": lambda x, by_time, whole, ragged: tf.range(
        tf.concat([tf.shape(x)[:1], tf.stack([tf.shape(x)[0], tf.shape(x)[1]])], 0)[2]
    ),
    "positions of what is looked up": lambda x, by_time, whole, ragged: tf.range(tf.shape(tf.gather(TABLE, x))[1]),
    "positions of what is reshaped": lambda x, by_time, whole, ragged: tf.range(
        tf.shape(tf.reshape(tf.one_hot(x, 4), [tf.shape(x)[0], -1]))[1]
    ),
    "positions by time": lambda x, by_time, whole, ragged: tf.range(tf.shape(tf.cast(by_time, tf.int64))[0]),
    "positions of what is transposed": lambda x, by_time, whole, ragged: tf.range(tf.shape(tf.transpose(by_time))[1]),
    "a rank": lambda x, by_time, whole, ragged: tf.range(tf.rank(ragged)),
}
EQUAL: dict[str, Form] = {
    "the size of the batch": lambda x, by_time, whole, ragged: tf.range(tf.shape(x)[0]),
    "its size by time": lambda x, by_time, whole, ragged: tf.range(tf.shape(by_time)[1]),
    "zeros of its shape": lambda x, by_time, whole, ragged: tf.zeros(tf.shape(x), tf.int32),
    "zeros of its sizes": lambda x, by_time, whole, ragged: tf.zeros([tf.shape(x)[0], 3], tf.int32),
    "positions for each row": lambda x, by_time, whole, ragged: tf.broadcast_to(tf.range(3), [tf.shape(x)[0], 3]),
    "the number of its elements": lambda x, by_time, whole, ragged: tf.range(tf.size(x)),
}
VARYING: dict[str, Form] = {
    "an input": lambda x, by_time, whole, ragged: x + 1,
    "zeros made of an input": lambda x, by_time, whole, ragged: x * 0,
    "as many as an element says": lambda x, by_time, whole, ragged: tf.range(tf.reduce_max(x)),
    "a size that an element says": lambda x, by_time, whole, ragged: tf.range(
        tf.shape(tf.expand_dims(tf.range(tf.reduce_max(x)), 0))[1]
    ),
    "a size that elements decide": lambda x, by_time, whole, ragged: tf.range(
        tf.shape(tf.transpose(tf.where(x > 0)))[1]
    ),
    "a size of unequal pieces": lambda x, by_time, whole, ragged: tf.range(tf.shape(tf.cast(ragged, tf.int64))[1]),
    "a random number": lambda x, by_time, whole, ragged: tf.random.uniform([3], maxval=4, dtype=tf.int32),
    "a variable that the step writes": lambda x, by_time, whole, ragged: tf.range(COUNTER.assign_add(1)),
}


def state_of(form: Form) -> str:
    def body(*inputs: Any) -> Any:
        return form(*inputs)

    specs = [tf.TensorSpec([None, None], tf.int32, name) for name in FEEDS]
    graph = func_graph.func_graph_from_py_func("step", body, specs, {})
    nodes = read_nodes(graph)
    index = {node.name: node.index for node in nodes}
    feeds = {(index[tensor.op.name], 0): feed for tensor, feed in zip(graph.inputs, FEEDS.values(), strict=False)}
    found = invariance_of(graph, nodes, feeds)
    output = index[graph.outputs[0].op.name], graph.outputs[0].value_index
    if output in found.independent:
        assert output in found.equal
        return "independent"
    return "equal" if output in found.equal else "varying"


@pytest.mark.parametrize("form", INDEPENDENT)
def test_ops_that_do_not_depend_on_the_batch_are_found(form: str) -> None:
    assert state_of(INDEPENDENT[form]) == "independent"


@pytest.mark.parametrize("form", EQUAL)
def test_ops_that_depend_only_on_the_size_of_the_batch_are_equal_in_all_microbatches(form: str) -> None:
    assert state_of(EQUAL[form]) == "equal"


@pytest.mark.parametrize("form", VARYING)
def test_ops_that_depend_on_data_vary(form: str) -> None:
    assert state_of(VARYING[form]) == "varying"
