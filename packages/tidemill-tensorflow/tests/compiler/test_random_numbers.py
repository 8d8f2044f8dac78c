"""Random numbers of a step: the same from TensorFlow's ops, in the plain part and in the compiled part."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tidemill_tensorflow.compiler.graphs.parts import Parts, take_apart
from tidemill_tensorflow.compiler.graphs.random_numbers import Draws


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_plain_and_compiled_parts_draw_the_numbers_of_the_script(dtype: str) -> None:
    tf.random.set_seed(3)

    @tf.function
    def noise() -> Any:
        return (
            tf.random.uniform([501], dtype=dtype, seed=1),
            tf.random.normal([501], dtype=dtype, seed=2),
            tf.random.stateless_uniform([501], [1, 2], dtype=dtype),
            tf.random.stateless_normal([501], [3, 4], dtype=dtype),
        )

    parts = take_apart(noise.get_concrete_function(), name="noise")
    assert parts.random_ops == 2
    compiled = parts.compiled()
    for run in range(3):
        drawn = noise()
        slots = [tf.constant([0, 0, run], tf.int64)]
        slots += parts.before(*[slots[index] for index in parts.reads[0]])
        for step in (parts.plain, compiled):
            own = [*slots, *step(*[slots[index] for index in parts.reads[1]])]
            own += parts.after(*[own[index] for index in parts.reads[2]])
            for numbers, index in zip(drawn, parts.results, strict=True):
                # XLA's logarithm may round to another neighbor, also in 16 bits.
                rtol = {"float16": 2**-10, "bfloat16": 2**-7}.get(dtype, 1e-5)
                np.testing.assert_allclose(*(tf.cast(each, tf.float64) for each in (own[index], numbers)), rtol, 1e-6)


def test_plain_parts_draw_by_one_kernel_per_op() -> None:
    weight = tf.Variable(1.0)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = weight * tf.reduce_sum(tf.random.uniform([100]) + tf.random.normal([100]))
        return tape.gradient(loss, weight)

    parts = take_apart(step.get_concrete_function(), name="step")
    graph = parts.plain._kept[1].graph.as_graph_def()  # type: ignore[attr-defined]
    called = {node.attr["f"].func.name for node in graph.node if node.op == "PartitionedCall"}
    ops = {
        node.op
        for function in graph.library.function
        if function.signature.name in called
        for node in function.node_def
    }
    assert {"StatelessRandomUniformV2", "StatelessRandomNormalV2"} <= ops
    assert "StatelessRandomUniformFullIntV2" not in ops, "drawing bits and converting them takes several passes"


def _arguments(parts: Parts, concrete: Any, inputs: list[Any], runs: int) -> list[Any]:
    """Return the arguments of a step that draws by a seed, before a run."""
    slots = [*inputs, *concrete.captured_inputs, Draws().state(parts.random_ops, later=runs)]
    slots += parts.before(*[slots[index] for index in parts.reads[0]])
    return [slots[index] for index in parts.reads[1]]


def _ops_of(function: Any) -> set[str]:
    """Return the ops of a function and of all functions that it calls."""
    graph = function._kept[1].graph.as_graph_def()
    library = {each.signature.name: each.node_def for each in graph.library.function}
    ops: set[str] = set()
    waiting = [graph.node]
    while waiting:
        for node in waiting.pop():
            ops.add(node.op)
            waiting.append(library.pop(node.attr["f"].func.name, ()))
    return ops


def test_kernels_draw_for_xla_by_seeds_of_every_kind_in_the_order_of_the_script() -> None:
    tf.random.set_seed(3)
    generator = keras.random.SeedGenerator(5)
    first, second = (tf.Variable(tf.zeros([7, 3])) for _ in range(2))

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def step(batch: tf.Tensor) -> None:
        hidden = keras.random.dropout(batch, 0.5, seed=generator) * 2.0
        noisy = hidden + keras.random.normal(tf.shape(hidden), seed=generator)
        first.assign(noisy)
        second.assign(noisy * tf.random.uniform(tf.shape(noisy)))

    concrete = step.get_concrete_function()
    parts = take_apart(concrete, name="step")
    batch = tf.ones([7, 3])
    compiled = parts.compiled_for(_arguments(parts, concrete, [batch], 0))
    assert compiled is not None
    seed = generator.state.numpy()
    drawn = []
    for _ in range(3):
        step(batch)
        drawn.append((first.numpy(), second.numpy(), generator.state.numpy()))
    generator.state.assign(seed)
    for run in range(3):
        compiled(*_arguments(parts, concrete, [batch], run))
        for found, expected in zip((first, second, generator.state), drawn[run], strict=True):
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_xla_draws_no_bits_if_kernels_can() -> None:
    weight = tf.Variable(tf.ones([4]))

    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def step(batch: tf.Tensor) -> None:
        weight.assign(tf.reduce_sum(batch * tf.random.uniform(tf.shape(batch)), 0))

    concrete = step.get_concrete_function()
    parts = take_apart(concrete, name="step")
    ops = _ops_of(parts.compiled_for(_arguments(parts, concrete, [tf.ones([6, 4])], 0)))
    assert "StatelessRandomUniformV2" in ops and "StatelessRandomUniformFullIntV2" not in ops
    assert "StatelessRandomUniformFullIntV2" in _ops_of(parts.compiled())


@pytest.mark.parametrize("unknown", ["shape", "seed"])
def test_xla_draws_where_shape_or_seed_depends_on_more_than_shapes_and_seeds(unknown: str) -> None:
    weight = tf.Variable(2.0)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def step(batch: tf.Tensor) -> None:
        size = tf.reduce_max(batch) if unknown == "shape" else tf.size(batch)
        seed = tf.stack([tf.cast(weight, tf.int32), 7]) if unknown == "seed" else tf.constant([1, 2])
        weight.assign(tf.reduce_sum(tf.random.stateless_uniform([size], seed)))

    concrete = step.get_concrete_function()
    parts = take_apart(concrete, name="step")
    assert parts.compiled_for(_arguments(parts, concrete, [tf.constant([3, 4])], 0)) is None
