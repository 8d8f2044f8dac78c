"""Random numbers of a step: the same from TensorFlow's ops, in the plain part and in the compiled part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tidemill_tensorflow.compiler.parts import take_apart


@pytest.mark.parametrize("dtype", ["float32", "float64"])
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
                np.testing.assert_allclose(own[index], numbers, rtol=1e-5, atol=1e-6)


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
