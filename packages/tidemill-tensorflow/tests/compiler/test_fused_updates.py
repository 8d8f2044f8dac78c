"""Updates in one kernel have the results of the script's own function, or stay as they are."""

import copy
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tidemill_tensorflow.compiler.graphs.fused_updates import fuse_updates
from tidemill_tensorflow.compiler.graphs.parts import Parts, take_apart

Step = Callable[[Any], Any]
FEATURES = np.random.default_rng(0).normal(size=(40, 8, 6))
IDS = np.random.default_rng(1).integers(0, 9, (40, 8))


@pytest.fixture(autouse=True)
def float64() -> Any:
    before = keras.backend.floatx()
    for library in (keras, tf_keras):
        library.backend.set_floatx("float64")
    yield
    for library in (keras, tf_keras):
        library.backend.set_floatx(before)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "Adam": lambda: keras.optimizers.Adam(0.01),
    "Adam with other factors": lambda: keras.optimizers.Adam(0.02, beta_1=0.8, beta_2=0.99, epsilon=1e-3),
    "AdamW": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
    "Adam with clipped norm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    "Adam with clipped global norm": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.1),
    "Adam with averages of the weights": lambda: keras.optimizers.Adam(
        0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=7
    ),
    "Adam with a schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 5, 0.9)),
    "Adam with accumulated gradients": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "Adam of tf_keras": lambda: tf_keras.optimizers.Adam(0.01),
    "AdamW of tf_keras": lambda: tf_keras.optimizers.AdamW(0.01, weight_decay=0.1),
}
UNFUSED: dict[str, Callable[[], Any]] = {
    "Adam with AMSGrad": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "SGD": lambda: keras.optimizers.SGD(0.01, momentum=0.9),
    "Nadam": lambda: keras.optimizers.Nadam(0.01),
    "RMSprop": lambda: keras.optimizers.RMSprop(0.01),
    "Lion": lambda: keras.optimizers.Lion(0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_keras_optimizers_have_the_same_results(name: str) -> None:
    # Gradients are accumulated in a branch of the step, which stays as it is.
    fused = 0 if name == "Adam with accumulated gradients" else 3
    plain = train(*dense_step(OPTIMIZERS[name]()), fused=None)
    other = train(*dense_step(OPTIMIZERS[name]()), fused=fused)
    for one, two in zip(plain, other, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", UNFUSED)
def test_other_optimizers_are_not_changed(name: str) -> None:
    train(*dense_step(UNFUSED[name]()), fused=0)


def test_an_embedding_keeps_its_own_update_beside_a_fused_one() -> None:
    def step_of(optimizer: Any) -> tuple[Step, list[Any]]:
        table, weights = keras.Variable(np.ones((9, 4))), keras.Variable(np.ones((4, 2)))
        optimizer.build([table, weights])

        @tf.function
        def step(index: Any) -> Any:
            with tf.GradientTape() as tape:
                rows = tf.gather(table.value, tf.gather(tf.constant(IDS), index))
                loss = tf.reduce_mean(tf.square(rows @ weights.value - 1.5) * [1.0, 3.0])
            optimizer.apply(tape.gradient(loss, [table.value, weights.value]))
            return loss

        return step, [table, weights, *optimizer.variables]

    plain = train(*step_of(keras.optimizers.Adam(0.01)), fused=None)
    other = train(*step_of(keras.optimizers.Adam(0.01)), fused=1)
    for one, two in zip(plain, other, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-11, atol=1e-14)


def test_float32_differs_by_the_rounding_of_the_decay_alone() -> None:
    keras.backend.set_floatx("float32")
    plain = train(*dense_step(keras.optimizers.Adam(1e-3), "float32"), fused=None)
    other = train(*dense_step(keras.optimizers.Adam(1e-3), "float32"), fused=3)
    for one, two in zip(plain, other, strict=True):
        # 1 - 0.999 is 1.3e-5 smaller than 0.001 in float32: the second average differs by that, its root by half.
        np.testing.assert_allclose(two, one, rtol=3e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_shorter_floats_are_not_fused(dtype: str) -> None:
    keras.backend.set_floatx(dtype)
    train(*dense_step(keras.optimizers.Adam(1e-2), dtype), fused=0)


def read(variable: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def update(*, change: str = "", rate: Any = 0.01) -> tuple[Step, list[Any]]:
    """Return a step with an update in Keras's form, written by hand, with one change."""
    weights, first, second, other = (tf.Variable(tf.ones([3], tf.float64)) for _ in range(4))
    scale = tf.constant(rate, tf.float64)

    @tf.function
    def step(index: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.square(weights - tf.cast(index, tf.float64)) * tf.range(1.0, 4.0, dtype=tf.float64))
        gradient = tape.gradient(loss, weights)
        earlier = read(first)
        if change in ("use of the earlier average", "write before and use of the earlier average"):
            loss += tf.reduce_sum(earlier)
        if "write before" in change:
            first.assign(gradient)
        first.assign_add((gradient - earlier) * 0.1)
        value = read(first)
        if change == "write after":
            first.assign(first * 2.0)
        if change == "other square":
            gradient = gradient * 2.0
        second.assign_add((tf.square(gradient) - second) * 0.001)
        if change == "use of the average":
            loss += tf.reduce_sum(first)
        if change == "effect between":
            other.assign_add(first)
            scale_now = scale * tf.reduce_mean(other)
        else:
            scale_now = scale
        weights.assign_sub((value * scale_now) / (tf.sqrt(second) + 1e-7))
        return loss

    return step, [weights, first, second, other]


def test_an_update_by_hand_in_the_form_of_keras_is_fused() -> None:
    check(fused=1)


@pytest.mark.parametrize("change", ["write after", "use of the average", "use of the earlier average"])
def test_other_uses_of_an_average_see_the_value_that_they_saw(change: str) -> None:
    check(fused=1, change=change)


def test_the_kernel_waits_for_other_uses_of_the_earlier_average() -> None:
    step, _ = update(change="use of the earlier average")
    parts = take_apart(concrete_of(step), name="step")
    graph_def, _ = fuse_updates(parts.step.graph_def, parts.tensor_of)
    nodes = {node.name: node for node in graph_def.node}
    (kernel,) = (node for node in graph_def.node if node.op == "ResourceApplyAdam")
    waited = [nodes[name[1:]] for name in kernel.input if name.startswith("^")]
    assert kernel.input[1] in [node.input[0] for node in waited if node.op == "ReadVariableOp"]


@pytest.mark.parametrize(
    "change", ["write before", "write before and use of the earlier average", "other square", "effect between"]
)
def test_an_update_that_the_kernel_would_compute_otherwise_is_not_fused(change: str) -> None:
    check(fused=0, change=change)


def test_a_rate_for_each_weight_is_not_fused() -> None:
    check(fused=0, rate=[0.01, 0.02, 0.03])


def check(*, fused: int, **options: Any) -> None:
    plain = train(*update(**options), fused=None)
    other = train(*update(**options), fused=fused)
    for one, two in zip(plain, other, strict=True):
        np.testing.assert_allclose(two, one, rtol=1e-11)


def dense_step(optimizer: Any, dtype: str = "float64") -> tuple[Step, list[Any]]:
    """Return a step that updates three variables, and all variables of the model and the optimizer."""
    library = tf_keras if isinstance(optimizer, tf_keras.optimizers.Optimizer) else keras
    library.utils.set_random_seed(3)
    last = library.layers.Dense(1, use_bias=False, dtype=dtype)
    model = library.Sequential([library.Input((6,)), library.layers.Dense(4, dtype=dtype), last])
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(index: Any) -> Any:
        features = tf.gather(tf.constant(FEATURES, dtype), index)
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(features) - tf.reduce_sum(features, -1, keepdims=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return step, [*model.variables, *optimizer.variables]


def train(step: Step, variables: list[Any], *, fused: int | None) -> list[Any]:
    """Run 40 steps, and return the losses and the final values of the variables.

    Args:
        step: The script's function, which takes the number of the step.
        variables: The variables.
        fused: Number of updates that must be fused; None runs the function as TensorFlow does.
    """
    concrete = concrete_of(step)
    parts = take_apart(concrete, name="step") if fused is not None else None
    function = parts.fused() if parts is not None else None
    if parts is not None:
        assert count(function) == fused
    losses = []
    for index in range(40):
        argument = tf.constant(index, tf.int64)
        if parts is None:
            losses.append(float(concrete(argument)))
        else:
            losses.append(float(run(parts, function or parts.plain, [argument, *concrete.captured_inputs])))
    return [losses, *(np.array(variable.numpy(), "float64") for variable in variables)]


def concrete_of(step: Any) -> Any:
    return step.get_concrete_function(tf.TensorSpec([], tf.int64))


def run(parts: Parts, function: Any, slots: list[Any]) -> Any:
    slots = copy.copy(slots)
    slots += [None, *parts.before(*[slots[index] for index in parts.reads[0]])]
    slots += function(*[slots[index] for index in parts.reads[1]])
    slots += parts.after(*[slots[index] for index in parts.reads[2]])
    return slots[parts.results[0]]


def count(function: Any) -> int:
    """Return how many kernels update variables in a function."""
    if function is None:
        return 0
    return [operation.type for operation in function._kept[1].graph.get_operations()].count("ResourceApplyAdam")
