"""Gradients of loops over batches of any size: XLA compiles them for the sizes of one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import while_v2

from tidemill_tensorflow.compiler.graphs import shape_rules
from tidemill_tensorflow.compiler.graphs.loop_sizes import loops_of, size_lists, sizes_of
from tidemill_tensorflow.compiler.graphs.loops import keep_sizes_known
from tidemill_tensorflow.compiler.graphs.parts import Parts, take_apart

LENGTH, UNITS = 6, 3
ACTIVATIONS = ["gelu", "silu", "mish", "log_softmax", "hard_sigmoid", "softplus", "exponential"]


@pytest.fixture(scope="module", autouse=True)
def sizes_kept_known() -> Iterator[None]:
    """Trace the gradients of loops as in jobs with the compiler."""
    graph = while_v2._WhileBodyGradFuncGraph
    original = graph._create_op_internal
    keep_sizes_known()
    yield
    graph._create_op_internal = original


def recurrent(kind: str) -> Any:
    layers = keras.layers
    keras.utils.set_random_seed(0)
    if kind == "masked":
        inputs = keras.Input((LENGTH,), dtype="int32")
        return keras.Model(inputs, layers.LSTM(UNITS)(layers.Embedding(9, 4, mask_zero=True)(inputs)))
    inputs = keras.Input((LENGTH, 4), dtype="float64")
    layer = {
        "LSTM": lambda: layers.LSTM(UNITS),
        "GRU": lambda: layers.GRU(UNITS),
        "SimpleRNN": lambda: layers.SimpleRNN(UNITS),
        "two directions": lambda: layers.Bidirectional(layers.LSTM(UNITS)),
        "after a convolution": lambda: keras.Sequential([layers.Conv1D(4, 3), layers.LSTM(UNITS)]),
        "after activations": lambda: keras.Sequential(
            [*(layers.Dense(4, activation=each) for each in ACTIVATIONS), layers.LSTM(UNITS)]
        ),
        "with dropout": lambda: layers.LSTM(UNITS, dropout=0.2, recurrent_dropout=0.2, seed=1),
    }[kind]()
    return keras.Model(inputs, layer(inputs))


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("LSTM", marks=pytest.mark.matrix),
        "GRU",
        pytest.param("SimpleRNN", marks=pytest.mark.matrix),
        "two directions",
        pytest.param("after a convolution", marks=pytest.mark.matrix),
        pytest.param("after activations", marks=pytest.mark.matrix),
        pytest.param("with dropout", marks=pytest.mark.matrix),
        "masked",
    ],
)
def test_recurrent_layers_are_compiled_for_each_batch_size(kind: str) -> None:
    keras.config.set_dtype_policy("float64")
    try:
        model = recurrent(kind)
    finally:
        keras.config.set_dtype_policy("float32")

    @tf.function
    def gradients_of(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(batch, training=True) ** 2)
        return [loss, *map(tf.convert_to_tensor, tape.gradient(loss, model.trainable_variables))]

    generator = np.random.default_rng(0)
    shape = [None, *model.input_shape[1:]]
    concrete = gradients_of.get_concrete_function(tf.TensorSpec(shape, model.inputs[0].dtype))
    parts = take_apart(concrete, name=kind.replace(" ", "_"))
    assert size_lists(parts.step.graph_def)
    seeds = [variable for variable in model.variables if "seed" in variable.name]
    for rows in (5, 2):
        features = generator.integers(0, 9, (rows, LENGTH)) if kind == "masked" else generator.random((rows, LENGTH, 4))
        batch = tf.constant(features, model.inputs[0].dtype)
        state = [seed.numpy() for seed in seeds]
        expected = concrete(batch)
        for seed, value in zip(seeds, state, strict=True):
            seed.assign(value)
        found = run(parts, [batch, *concrete.captured_inputs])
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-13)


def test_loops_with_one_body_may_have_different_sizes() -> None:
    weights = tf.Variable(tf.reshape(tf.range(16.0, dtype=tf.float64), [4, 4]) / 16)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float64)])
    def looped(values: Any) -> Any:
        def step(values: Any) -> Any:
            return (tf.tanh(tf.matmul(values, weights) + values),)

        (values,) = tf.while_loop(lambda values: True, step, (values,), maximum_iterations=3)
        return tf.reduce_sum(values)

    @tf.function
    def gradients_of(one: Any, other: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = looped(one) + 2 * looped(other)
        return [loss, tape.gradient(loss, weights)]

    concrete = gradients_of.get_concrete_function(*[tf.TensorSpec([None, 4], tf.float64)] * 2)
    parts = take_apart(concrete, name="twice")
    lists = size_lists(parts.step.graph_def)
    bodies = {node.name: node.attr["body"].func.name for node in parts.step.graph_def.node if node.op.endswith("While")}
    loops = {each.loop for each in lists}
    assert len(loops) == 2 and len({bodies[loop] for loop in loops}) == 1
    arguments = [tf.constant(np.linspace(0, 1, 4 * rows).reshape(rows, 4)) for rows in (5, 2)]
    for found, expected in zip(run(parts, [*arguments, *concrete.captured_inputs]), concrete(*arguments), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)


def run(parts: Parts, slots: list[Any]) -> list[Any]:
    """Run a step whose XLA variant is compiled for the shapes of these arguments."""
    slots = [*slots, None]
    slots += parts.before(*[slots[index] for index in parts.reads[0]])
    arguments = [slots[index] for index in parts.reads[1]]
    compiled = parts.compiled_for(arguments)
    assert compiled is not None
    slots += compiled(*arguments)
    slots += parts.after(*[slots[index] for index in parts.reads[2]])
    return [slots[index] for index in parts.results]


def first_rows(values: Any) -> Any:
    return values[: tf.cast(values[0, 0], tf.int32)]


def selected_rows(values: Any) -> Any:
    return tf.boolean_mask(values, values[:, 0] > 0.5)


def repeated_rows(values: Any) -> Any:
    return tf.tile(values, [tf.cast(values[0, 0], tf.int32), 1])


def same_rows(values: Any) -> Any:
    return tf.tile(values, [tf.shape(values)[0], 1])


@pytest.mark.parametrize(
    ("change", "follows"), [(first_rows, False), (selected_rows, False), (repeated_rows, False), (same_rows, True)]
)
@pytest.mark.parametrize("inside", [False, True], ids=["before the loop", "in the loop"])
def test_sizes_that_may_depend_on_values_are_no_constants(
    change: Callable[[Any], Any], follows: bool, inside: bool
) -> None:
    weights = tf.Variable(tf.ones([4, 4]))

    @tf.function
    def gradients_of(values: Any) -> Any:
        with tf.GradientTape() as tape:
            values = values if inside else change(values)
            total = tf.zeros([1, 1])
            for _ in tf.range(3):
                own = change(values) if inside else values
                total = total + tf.reduce_sum((tf.matmul(own, weights) + total) ** 2)
        return tape.gradient(total, weights)

    parts = take_apart(gradients_of.get_concrete_function(tf.TensorSpec([None, 4])), name="loop")
    lists = size_lists(parts.step.graph_def)
    assert lists
    assert (loops_of(parts.whole.flat, parts.step, lists) is not None) == follows


def test_sizes_that_differ_between_iterations_are_no_constants() -> None:
    found = size_lists(parts_of_loop().step.graph_def)
    element = tf.constant(-1)
    for sizes, expected in (([[4, 3], [4, 3]], [4, 3]), ([[4, 3], [5, 3]], None), ([[4], [4, 3]], None), ([], None)):
        filled = tf.raw_ops.EmptyTensorList(element_shape=element, max_num_elements=-1, element_dtype=tf.int32)
        for size in sizes:
            filled = tf.raw_ops.TensorListPushBack(input_handle=filled, tensor=tf.constant(size, tf.int32))
        sizes_found = sizes_of(found[:1], {found[0].tensor: filled})
        assert (sizes_found is None) == (expected is None)
        if sizes_found is not None:
            assert sizes_found[found[0]].tolist() == expected


def parts_of_loop() -> Parts:
    weights = tf.Variable(tf.ones([4, 4]))

    @tf.function
    def gradients_of(values: Any) -> Any:
        with tf.GradientTape() as tape:
            total = tf.zeros([1, 1])
            for _ in tf.range(3):
                total = total + tf.reduce_sum((tf.matmul(values, weights) + total) ** 2)
        return tape.gradient(total, weights)

    return take_apart(gradients_of.get_concrete_function(tf.TensorSpec([None, 4])), name="loop")


def test_the_rules_are_about_ops_of_tensorflow() -> None:
    for op in [*shape_rules._SHAPED, *shape_rules._BY_VALUES]:
        assert op_def_registry.get(op) is not None, op
