"""Decisions over all gradients cover all partitions, and detect a bad gradient on one of them."""

import math
from typing import Any

import pytest

import ranks

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 2}


@pytest.mark.smp_first
@pytest.mark.parametrize("gradients", ["dense", "sparse", "none", "infinite", "nan"])
def test_clipping_outside_the_step_equals_one_process(gradients: str) -> None:
    results = ranks.run(2, clip_both, gradients, config=CONFIG)
    for place, (clipped, norms, plain, plain_norms) in enumerate(results):
        assert norms == pytest.approx(plain_norms, rel=1e-6, nan_ok=True), "outside the step, and inside"
        assert math.isfinite(norms[0]) == (gradients in ("dense", "sparse", "none"))
        held = (0, 1) if place == 0 else (2, 3)
        for number, (mine, whole) in enumerate(zip(clipped, plain, strict=True)):
            if number in held and whole is not None:
                assert mine == pytest.approx(whole, rel=1e-6, abs=1e-7, nan_ok=True)
            else:
                assert mine is None


def test_a_given_norm_is_used() -> None:
    assert ranks.run(2, clip_by_given_norm, config=CONFIG) == [pytest.approx([0.5, 0.5]), pytest.approx([0.5, 0.5])]


def test_tensorflow_clipping_by_the_norm_of_one_rank_is_warned_of_once() -> None:
    first, second = ranks.run(2, clip_by_tensorflow, config=CONFIG)
    assert [len(messages) for messages in first] == [0, 1, 0, 0, 0]
    assert "Call smp.clip_by_global_norm" in first[1][0]
    assert not any(second), "one rank says it for all"


@pytest.mark.parametrize("where", ["first partition", "last partition"])
def test_an_infinite_gradient_on_one_rank_skips_the_step_on_all_ranks(where: str) -> None:
    for scales, weights, plain_scales, plain_weights in ranks.run(2, scale_both, where, config=CONFIG):
        assert scales == plain_scales == [16.0, 8.0, 16.0]
        assert weights == pytest.approx(plain_weights, rel=1e-6)
        assert weights[0] == weights[1] != weights[2], "the second step is skipped"


# --- on the ranks -----------------------------------------------------------------------------------------------------


def _net(*, distributed: bool) -> Any:
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = keras.layers.Embedding(5, 6)
            self.body = keras.layers.Dense(8, use_bias=False)
            self.head = keras.layers.Dense(models.CLASSES)

        def call(self, x: Any, training: bool | None = None) -> Any:
            x = x + tf.reduce_sum(self.embedding(tf.cast(tf.math.floormod(x * 10.0, 5.0), tf.int32)), 1)
            x = self.body(x)
            with smp.partition(1):
                return self.head(x)

    keras.utils.set_random_seed(3)
    return (models.distributed(Net) if distributed else Net)()


def _spoil(grads: list[Any], what: str) -> list[Any]:
    """Replace one gradient, in one partition, by the value under test."""
    import tensorflow as tf

    if what == "none":
        return [grads[0], None, None, grads[3]]
    if what in ("infinite", "nan") and grads[3] is not None:
        return [*grads[:3], grads[3] * float("inf" if what == "infinite" else "nan")]
    if what == "dense":
        return [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
    return grads


def clip_both(what: str) -> Any:
    import numpy as np
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    net, plain = _net(distributed=True), _net(distributed=False)
    (x, y), *_ = models.batches(1, 8)

    def gradients(model: Any, x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(model, x, y)
        return tape.gradient(loss, model.trainable_variables)

    @smp.step
    def step(x: Any, y: Any) -> Any:
        grads = gradients(net, x, y)
        return grads, smp.clip_by_global_norm(_spoil(grads, what), 0.05)[1]

    @tf.function
    def clip(x: Any, y: Any) -> Any:
        grads, inside = step(x, y)
        clipped, norm = smp.clip_by_global_norm(_spoil([grad.accumulate() for grad in grads], what), 0.05)
        return clipped, norm, inside.outputs

    @tf.function
    def clip_plain(x: Any, y: Any) -> Any:
        clipped, norm = tf.clip_by_global_norm(_spoil(gradients(plain, x, y), what), 0.05)
        return clipped, norm, tf.linalg.global_norm(_spoil(gradients(plain, x[:4], y[:4]), what))

    def numbers(grad: Any) -> Any:
        return None if grad is None else np.asarray(tf.convert_to_tensor(grad)).ravel().tolist()

    clipped, norm, inside = clip(tf.constant(x), tf.constant(y))
    plain_clipped, plain_norm, plain_inside = clip_plain(tf.constant(x), tf.constant(y))
    return (
        [numbers(grad) for grad in clipped],
        [float(norm), float(inside[0])],
        [numbers(grad) for grad in plain_clipped],
        [float(plain_norm), float(plain_inside)],
    )


def clip_by_given_norm() -> list[float]:
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    clipped, norm = smp.clip_by_global_norm([tf.constant([1.0, 1.0]), None], 1.0, use_norm=tf.constant(2.0))
    assert float(norm) == 2.0
    assert clipped[1] is None
    return [float(value) for value in clipped[0]]


def scale_both(where: str) -> Any:
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    spoiled = 1 if where == "first partition" else 2

    def train(model: Any) -> Any:
        optimizer = keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.1), initial_scale=8.0, dynamic_growth_steps=1
        )

        def gradients(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                scaled = optimizer.scale_loss(models.loss_of(model, x, y))
            return tape.gradient(scaled, model.trainable_variables)

        forward_backward = smp.step(gradients)

        @tf.function
        def step(x: Any, y: Any, factor: Any) -> Any:
            grads = [grad.accumulate() for grad in forward_backward(x, y)] if model is net else gradients(x, y)
            grads = [
                grad * factor if place == spoiled and grad is not None else grad for place, grad in enumerate(grads)
            ]
            optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))

        (x, y), *_ = models.batches(1, 8)
        scales, weights = [], []
        held = model.body if smp.rank() == 0 else model.head
        for factor in (1.0, float("inf"), 1.0):
            step(tf.constant(x), tf.constant(y), tf.constant(factor))
            scales.append(float(optimizer.dynamic_scale))
            weights.append(float(tf.reduce_sum(tf.abs(held.kernel))))
        return scales, weights

    net, plain = _net(distributed=True), _net(distributed=False)
    return (*train(net), *train(plain))


def clip_by_tensorflow() -> list[list[str]]:
    """Return the warnings of calls inside the step, outside, outside again, by smp, and for a list without None."""
    import logging

    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp
    from checkpoints import forget_the_step_before

    forget_the_step_before()
    net, warned = _net(distributed=True), []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("smdistributed.modelparallel")

    @smp.step
    def inside(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(net, x, y)
        return tf.clip_by_global_norm([*tape.gradient(loss, net.trainable_variables), None], 1.0)[0]

    (x, y), *_ = models.batches(1, 8)
    x, y = tf.constant(x), tf.constant(y)
    grads: list[Any] = []
    calls = [
        lambda: grads.extend(grad.accumulate() for grad in inside(x, y)),
        lambda: tf.clip_by_global_norm(grads, 1.0),
        lambda: tf.linalg.global_norm(grads),
        lambda: smp.clip_by_global_norm(grads, 1.0),
        lambda: tf.clip_by_global_norm([grad for grad in grads if grad is not None], 1.0),
    ]
    log.addHandler(handler)
    for call in calls:
        messages: list[str] = []
        call()
        warned.append(messages)
    log.removeHandler(handler)
    return warned
