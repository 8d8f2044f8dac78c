"""Reduced precision and synchronized statistics: the deviation of smp is rounding, and no more than plain Keras's own.

Two correct programs differ if they round differently, and normalization makes small differences larger. So no fixed
tolerance separates rounding from a fault. Here plain Keras in float64 is the reference. The measure of rounding is how
far plain Keras in the same precision is from it, over changes that mean nothing mathematically: the rows of each
microbatch in another order, and the microbatches in another order. smp may deviate `FACTOR` times as much. The same
limit must reject plain Keras with faults, so that it is shown to be tight.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import ranks

FACTOR = 2.0
"""The largest of a few deviations of plain Keras is a sample; another sample is rarely twice as large."""
STEPS, BATCH, PIECES, WIDTH = 6, 32, 2, 12
WHOLE, MISSING, ONCE, TWICE = (
    "statistics of the whole batch",
    "last microbatch missing",
    "moving averages updated once",
    "loss scaled twice",
)
FAULTS = {"float32": (WHOLE, ONCE), "mixed_bfloat16": (WHOLE, MISSING), "mixed_float16": (ONCE, TWICE)}
"""Faults that the limit must reject, by policy."""
Found = tuple[dict[str, Any], list[float]]
"""The values of variables by name, and the losses."""


@pytest.mark.parametrize("policy", list(FAULTS))
def test_smp_deviates_from_float64_as_plain_keras_does_in_the_same_precision(policy: str) -> None:
    results = ranks.run(2, train, policy, config={"microbatches": PIECES, "auto_partition": True})
    reference, *runs = results[0][1]
    faults = results[1][1]
    own = [_deviations(run, reference) for run in runs]
    limits = {name: FACTOR * max(run[name] for run in own) for name in own[0]}
    held = set()
    for trained, _ in results:
        found = _deviations(trained, reference)
        held |= set(found)
        assert {name: (gap, limits[name]) for name, gap in found.items() if gap > limits[name]} == {}
    assert held == set(limits)
    for fault, wrong in zip(FAULTS[policy], faults, strict=True):
        assert any(gap > limits[name] for name, gap in _deviations(wrong, reference).items()), fault


def _deviations(found: Found, reference: Found) -> dict[str, float]:
    """Return the largest deviation of the losses and of each variable that is held."""
    import numpy as np

    gaps = {name: float(np.abs(value - reference[0][name]).max()) for name, value in found[0].items()}
    return gaps | {"losses": float(np.abs(np.subtract(found[1], reference[1])).max())}


def train(policy: str) -> tuple[Found, list[Found]]:
    """Train by smp, and plainly: on rank 0 in float64 and with rows in several orders, on rank 1 with faults."""
    import numpy as np

    import smdistributed.modelparallel.tensorflow as smp

    data = _batches()
    found = _distributed(policy, data)
    if smp.rank() == 1:
        return found, [_plain(policy, data, fault) for fault in FAULTS[policy]]
    rows = [np.random.RandomState(seed).permutation(BATCH // PIECES) for seed in range(4)]
    pieces = [np.arange(PIECES), np.arange(PIECES)[::-1]]
    orders = [np.add.outer(order * (BATCH // PIECES), row).reshape(-1) for order in pieces for row in rows]
    return found, [_plain("float64", data), *_plain_runs(policy, data, orders)]


def _batches() -> list[tuple[Any, Any]]:
    import numpy as np

    random = np.random.RandomState(7)
    # The mean is large compared to the deviation: synchronized statistics are differences of large sums.
    return [(3.0 + random.randn(BATCH, WIDTH), random.randn(BATCH, 1)) for _ in range(STEPS)]


def _model(policy: str) -> Any:
    import keras

    keras.utils.set_random_seed(3)
    precision = keras.DTypePolicy(policy)
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((WIDTH,), dtype=precision.compute_dtype),
            layers.BatchNormalization(synchronized=True, momentum=0.9, dtype=precision),
            layers.Dense(16, activation="tanh", dtype=precision),
            layers.BatchNormalization(synchronized=True, momentum=0.9, dtype=precision),
            layers.Dense(16, activation="tanh", dtype=precision),
            layers.BatchNormalization(momentum=0.9, dtype=precision),
            layers.Dense(1, dtype=precision),
        ]
    )


def _optimizer(policy: str) -> Any:
    import keras

    inner = keras.optimizers.SGD(0.05, momentum=0.9)
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**10) if "float16" in policy else inner


def _loss(model: Any, x: Any, y: Any) -> Any:
    import tensorflow as tf

    outputs = model(x, training=True)
    wide = tf.float64 if outputs.dtype == tf.float64 else tf.float32
    return tf.reduce_mean((tf.cast(outputs, wide) - tf.cast(y, wide)) ** 2)


def _plain(policy: str, data: Any, fault: str = "") -> Found:
    return next(iter(_plain_runs(policy, data, [range(BATCH)], fault)))


def _plain_runs(policy: str, data: Any, orders: Any, fault: str = "") -> Iterator[Found]:
    """Train by plain Keras once per order of rows."""
    import tensorflow as tf

    import models

    model, optimizer = _model(policy), _optimizer(policy)
    variables = model.trainable_variables
    optimizer.build(variables)
    count = 1 if fault == WHOLE else PIECES

    @models.plain_function
    def train(x: Any, y: Any) -> Any:
        losses, gradients = [], []
        for number, (part, target) in enumerate(zip(tf.split(x, count), tf.split(y, count), strict=True)):
            averages = [tf.identity(variable) for variable in model.non_trainable_variables]
            with tf.GradientTape() as tape:
                loss = _loss(model, part, target)
                scaled = optimizer.scale_loss(loss)
                scaled = optimizer.scale_loss(scaled) if fault == TWICE else scaled
            gradients.append(tape.gradient(scaled, variables))
            losses.append(loss)
            if fault == ONCE and number > 0:
                for variable, before in zip(model.non_trainable_variables, averages, strict=True):
                    variable.assign(before)
        if fault == MISSING:
            losses, gradients = losses[:-1], gradients[:-1]
        optimizer.apply_gradients([(sum(each) / len(each), v) for *each, v in zip(*gradients, variables, strict=True)])
        return sum(losses) / len(losses)

    everything = [*model.variables, *optimizer.variables]
    initial = [variable.numpy() for variable in everything]
    for order in orders:
        for variable, value in zip(everything, initial, strict=True):
            variable.assign(value)
        losses = [float(train(*(tf.constant(part[list(order)]) for part in batch))) for batch in data]
        yield _values(model.variables), losses


def _distributed(policy: str, data: Any) -> Found:
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    inner, optimizer = _model(policy), _optimizer(policy)
    model = smp.DistributedModel.wrap(inner)

    @smp.step
    def gradients_of(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = _loss(model, x, y)
            scaled = optimizer.scale_loss(loss)
        return tape.gradient(scaled, model.trainable_variables), loss

    @tf.function
    def train(x: Any, y: Any) -> Any:
        gradients, loss = gradients_of(x, y)
        means = [gradient.accumulate() for gradient in gradients]
        optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
        return loss.reduce_mean()

    losses = [float(train(*map(tf.constant, batch))) for batch in data]
    held = [variable for variable in inner.variables if not is_remote(variable)]
    return _values(held, inner.variables), losses


def _values(variables: Any, everything: Any = None) -> dict[str, Any]:
    import numpy as np

    places = [id(variable) for variable in everything or variables]
    return {
        f"{places.index(id(variable))} {variable.name}": np.asarray(variable).astype("float64")
        for variable in variables
    }
