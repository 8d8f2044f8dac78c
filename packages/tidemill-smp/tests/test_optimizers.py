"""Optimizers on two partitions behave as on the plain model."""

import warnings
from typing import Any

import pytest

import ranks

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 2}
STEPS, BATCH = 7, 8
OPTIMIZERS = (
    "ema",
    "ema_overwriting",
    "weight_decay",
    "accumulating",
    "accumulating_clipped",
    "global_clipnorm",
    "clipnorm",
    "clipvalue",
    "nadam",
    "adafactor",
    "scaled",
    "scaled_clipped",
)
WITHOUT_GRADIENTS = ("ema_overwriting", "weight_decay", "accumulating_clipped", "scaled_clipped")
"""Models in which a rank has no trainable variables, or biases only."""


@pytest.mark.parametrize(
    ("model", "optimizers"),
    [
        ("sparse", OPTIMIZERS),
        ("frozen_first", WITHOUT_GRADIENTS),
        pytest.param("frozen_last", WITHOUT_GRADIENTS, marks=pytest.mark.matrix),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_equal_those_of_the_unpartitioned_model(model: str, optimizers: tuple[str, ...]) -> None:
    for result in ranks.run(2, train_all, model, optimizers, config=CONFIG):
        assert set(result) == set(optimizers)
        for name, (differences, too_few, too_many, iterations) in result.items():
            assert max(differences) < 2e-6, f"{model}, {name}: {differences}"
            assert iterations == STEPS
            assert too_few == too_many == 0, f"{model}, {name}: slots in the wrong places"


@pytest.mark.smp_first
def test_loss_scaling_skips_on_all_ranks_and_stays_equal() -> None:
    for scales, plain_scales, difference in ranks.run(2, train_with_infinities, config=CONFIG):
        assert scales == plain_scales
        assert scales[2] < scales[1], "it goes down for an infinite batch"
        assert scales[1] > 8.0, "it goes up for the others"
        assert difference < 2e-6


def test_an_optimizer_built_before_the_model_is_partitioned_frees_remote_slots() -> None:
    results = ranks.run(2, build_early, config=CONFIG)
    assert [(held, remote) for held, remote, _ in results] == [(2, 2), (2, 2)]
    assert max(gap for _, _, gap in results) < 2e-6


# --- on the ranks -----------------------------------------------------------------------------------------------------


def _optimizer(name: str) -> Any:
    import keras

    o = keras.optimizers
    return {
        "ema": lambda: o.Adam(0.01, use_ema=True, ema_momentum=0.5),
        "ema_overwriting": lambda: o.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        "weight_decay": lambda: o.AdamW(0.01, weight_decay=0.1),
        "accumulating": lambda: o.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3),
        "accumulating_clipped": lambda: o.Adam(0.01, gradient_accumulation_steps=2, global_clipnorm=0.05),
        "global_clipnorm": lambda: o.SGD(0.1, global_clipnorm=0.05),
        "clipnorm": lambda: o.SGD(0.1, clipnorm=0.05),
        "clipvalue": lambda: o.SGD(0.1, clipvalue=0.01),
        "nadam": lambda: o.Nadam(0.01),
        "adafactor": lambda: o.Adafactor(0.01),
        "scaled": lambda: o.LossScaleOptimizer(o.Adam(0.01), initial_scale=8.0, dynamic_growth_steps=2),
        "scaled_clipped": lambda: o.LossScaleOptimizer(o.SGD(0.1, global_clipnorm=0.05), initial_scale=8.0),
    }[name]()


def _model(name: str, *, distributed: bool) -> Any:
    import keras
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    class Net(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            if name == "sparse":
                self.embedding = keras.layers.Embedding(5, 6)
            self.body = keras.layers.Dense(8, activation="tanh", trainable=name != "frozen_first")
            self.head = keras.layers.Dense(models.CLASSES, trainable=name != "frozen_last")

        def call(self, x: Any, training: bool | None = None) -> Any:
            if name == "sparse":
                x = x + tf.reduce_sum(self.embedding(tf.cast(tf.math.floormod(x * 10.0, 5.0), tf.int32)), 1)
            x = self.body(x)
            with smp.partition(1):
                return self.head(x)

    keras.utils.set_random_seed(3)
    return (models.distributed(Net) if distributed else Net)()


def _train(model: Any, optimizer: Any, data: Any, *, distributed: bool) -> tuple[list[float], list[float]]:
    """Train with `smp`, or by plain Keras on whole batches; return the losses and the loss scales."""
    import tensorflow as tf

    import models
    import smdistributed.modelparallel.tensorflow as smp

    scaled = optimizer.scale_loss

    def gradients(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(model, x, y)
            scaled_loss = scaled(loss)
        return tape.gradient(scaled_loss, model.trainable_variables), loss

    step = smp.step(gradients)

    @(tf.function if distributed else models.plain_function)
    def train(x: Any, y: Any) -> Any:
        if distributed:
            grads, loss = step(x, y)
            grads, loss = [grad.accumulate() for grad in grads], loss.reduce_mean()
        else:
            grads, loss = gradients(x, y)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    losses, scales = [], []
    for x, y in data:
        losses.append(float(train(tf.constant(x), tf.constant(y))))
        scales.append(float(getattr(optimizer, "dynamic_scale", 0.0)))
    return losses, scales


def _weights(model: Any) -> list[Any]:
    import numpy as np

    return [np.asarray(variable) for variable in model.variables]


def _difference(model: Any, weights: list[Any]) -> float:
    import numpy as np

    from smdistributed.modelparallel.tensorflow.variables import is_remote

    pairs = [pair for pair in zip(model.variables, weights, strict=True) if not is_remote(pair[0])]
    return max((float(np.abs(np.asarray(a) - b).max(initial=0.0)) for a, b in pairs), default=0.0)


def _both(model: str, optimizer: str, data: Any) -> Any:
    net, updating = _model(model, distributed=True), _optimizer(optimizer)
    plain, plain_updating = _model(model, distributed=False), _optimizer(optimizer)
    traces = _train(net, updating, data, distributed=True)
    plain_traces = _train(plain, plain_updating, data, distributed=False)
    return traces, plain_traces, _difference(net, _weights(plain))


def _plain(model: str, optimizer: str, data: Any) -> list[list[Any]]:
    """Return the weights of the plain model after training, and after `finalize_variable_values`."""
    plain, updating = _model(model, distributed=False), _optimizer(optimizer)
    _train(plain, updating, data, distributed=False)
    weights = [_weights(plain)]
    if optimizer == "ema":
        updating.finalize_variable_values(plain.trainable_variables)
        weights.append(_weights(plain))
    return weights


def train_all(model: str, optimizers: tuple[str, ...]) -> Any:
    import keras

    import models
    import smdistributed.modelparallel.tensorflow as smp

    data = models.batches(STEPS, BATCH)
    plain = {name: _plain(model, name, data) for name in optimizers[smp.rank() :: smp.size()]}
    weights = {name: found for mine in smp.allgather(plain, smp.WORLD) for name, found in mine.items()}
    keras.backend.clear_session()
    return {name: _trained(model, name, data, weights[name]) for name in optimizers}


def _trained(model: str, name: str, data: Any, weights: list[list[Any]]) -> Any:
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    net, optimizer = _model(model, distributed=True), _optimizer(name)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Gradients do not exist")
        _train(net, optimizer, data, distributed=True)
    gaps = [_difference(net, weights[0])]
    if name == "ema":
        optimizer.finalize_variable_values(net.trainable_variables)
        gaps.append(_difference(net, weights[1]))
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    lists = [
        entries
        for attribute, entries in vars(inner).items()
        if isinstance(entries, list) and attribute not in ("_variables", "_trainable_variables")
        if len(entries) == len(net.trainable_variables) and name != "adafactor"
    ]
    pairs = [
        (is_remote(variable), is_remote(slot))
        for entries in lists
        for variable, slot in zip(net.trainable_variables, entries, strict=True)
    ]
    return gaps, pairs.count((False, True)), pairs.count((True, False)), int(inner._iterations)


def train_with_infinities() -> Any:
    import numpy as np

    import models

    data = models.batches(9, BATCH)
    for number in (2, 5):
        data[number][0][0, 0] = np.inf
    (_, scales), (_, plain_scales), difference = _both("plain", "scaled", data)
    return scales, plain_scales, difference


def build_early() -> Any:
    import keras

    import models
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    data = models.batches(STEPS, BATCH)
    pair = []
    for distributed in (True, False):
        net, optimizer = _model("plain", distributed=distributed), keras.optimizers.SGD(0.1, momentum=0.9)
        net.body.build((None, models.FEATURES))
        net.head.build((None, 8))
        optimizer.build(net.trainable_variables)
        _train(net, optimizer, data, distributed=distributed)
        pair.append((net, optimizer))
    slots = pair[0][1].momentums
    difference = _difference(pair[0][0], _weights(pair[1][0]))
    return sum(not is_remote(s) for s in slots), sum(map(is_remote, slots)), difference
