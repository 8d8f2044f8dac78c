"""Models with outputs and losses in early partitions: gradients are ready there while later segments still run."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import parity
import ranks

STEPS = 6
TRANSPORTS: dict[str, dict[str, str]] = {"compiled": {}, "python": {"SMP_TRANSPORT": "python"}}
CASES = [
    ("heads", "interleaved", "compiled"),
    ("exit", "simple", "python"),
    ("auxiliary", "simple", "compiled"),
]
MATRIX = [
    case
    for case in itertools.product(
        ("heads", "supervised", "exit", "auxiliary"), ("interleaved", "simple"), ("compiled", "python")
    )
    if case not in CASES
]


@pytest.mark.smp_first
@pytest.mark.parametrize(("shape", "pipeline", "transport"), CASES)
def test_models_with_early_outputs_train_as_in_plain_keras(shape: str, pipeline: str, transport: str) -> None:
    check(shape, pipeline, transport)


@pytest.mark.matrix
@pytest.mark.parametrize(("shape", "pipeline", "transport"), MATRIX)
def test_early_outputs_train_as_in_plain_keras_in_every_combination(shape: str, pipeline: str, transport: str) -> None:
    check(shape, pipeline, transport)


def check(shape: str, pipeline: str, transport: str) -> None:
    held = set()
    environment = TRANSPORTS[transport]
    for found in ranks.run(2, train_in_all_ways, shape, pipeline, config=parity.MANUAL, environment=environment):
        for way, (losses, plain_losses, gaps) in found.items():
            assert losses == pytest.approx(plain_losses, rel=1e-10), way
            assert {number: gap for number, gap in gaps.items() if gap > 1e-12} == {}, way
            held |= set(gaps)
    assert held == set(range(len(held)))


def train_in_all_ways(shape: str, pipeline: str) -> dict[str, Any]:
    """On a rank, in float64: return losses, those of plain Keras on whole batches, and the gaps to its weights."""
    import numpy as np
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from sessions import configured
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    keras, found = tf.keras, {}
    before = keras.backend.floatx()
    keras.backend.set_floatx("float64")
    try:
        with configured(microbatches=2, pipeline=pipeline):
            for way, train in (("fit", fit), ("step", train_by_steps)):
                nets, losses = [], []
                for base in (smp.DistributedModel, keras.Model):
                    keras.utils.set_random_seed(3)
                    nets.append(model_on(base)(SHAPES[shape]))
                    losses.append(train(nets[-1]))
                pairs = zip(nets[0].trainable_variables, nets[1].trainable_variables, strict=True)
                gaps = {
                    number: float(np.abs(np.asarray(ours) - np.asarray(plain)).max())
                    for number, (ours, plain) in enumerate(pairs)
                    if not is_remote(ours)
                }
                found[way] = (*losses, gaps)
    finally:
        keras.backend.set_floatx(before)
    return found


def model_on(base: Any) -> Any:
    import tensorflow as tf

    layers = tf.keras.layers

    class Net(base):  # type: ignore[misc]
        def __init__(self, flow: Callable[..., Any]) -> None:
            super().__init__()
            self.flow = flow
            self.body = [layers.Dense(16, activation="relu") for _ in range(4)]
            self.heads = [layers.Dense(4) for _ in range(4)]
            self.norm = layers.BatchNormalization()

        def call(self, x: Any, training: bool | None = None) -> Any:
            return self.flow(self, x, training)

    return Net


def heads(net: Any, x: Any, training: bool | None) -> Any:
    """Two tasks, one of which ends in partition 0."""
    import smdistributed.modelparallel.tensorflow as smp

    x = net.body[0](x)
    first = net.heads[0](x)
    with smp.partition(1):
        return first, net.heads[1](net.body[1](x))


def supervised(net: Any, x: Any, training: bool | None) -> Any:
    """An output after each layer, with layers that alternate between the partitions."""
    import smdistributed.modelparallel.tensorflow as smp

    outputs = []
    for number, (layer, head) in enumerate(zip(net.body, net.heads, strict=True)):
        with smp.partition(number % 2):
            x = layer(x)
            outputs.append(head(x))
    return tuple(outputs)


def leave_early(net: Any, x: Any, training: bool | None) -> Any:
    """Rows whose early output is large take it, the others go on."""
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    x = net.body[0](x)
    early = net.heads[0](x)
    with smp.partition(1):
        late = net.heads[1](net.body[1](x))
        return early, tf.where(tf.reduce_max(early, -1, keepdims=True) > 0.5, early, late)


def auxiliary(net: Any, x: Any, training: bool | None) -> Any:
    """A loss of its own in partition 0, behind batch normalization."""
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    x = net.norm(net.body[0](x), training=training)
    net.add_loss(tf.reduce_mean(tf.square(net.heads[0](x) - 1.0)))
    with smp.partition(1):
        return net.heads[1](net.body[1](x))


SHAPES = {"heads": heads, "supervised": supervised, "exit": leave_early, "auxiliary": auxiliary}


def batch(net: Any) -> tuple[Any, Any]:
    """Return a batch whose halves are equal, so that they have the statistics of the whole, and targets per output."""
    import numpy as np

    random = np.random.RandomState(7)
    x, y = np.tile(random.randn(8, 6), (2, 1)), np.tile(random.randn(8, 4), (2, 1))
    count = {heads: 2, supervised: 4, leave_early: 2}.get(net.flow)
    return x, y if count is None else (y,) * count


def fit(net: Any) -> list[float]:
    import tensorflow as tf

    x, y = batch(net)
    net.compile(tf.keras.optimizers.SGD(0.3), ["mse"] * len(y) if isinstance(y, tuple) else "mse")
    return net.fit(x, y, batch_size=16, epochs=STEPS, shuffle=False, verbose=0).history["loss"]


def train_by_steps(net: Any) -> list[float]:
    """Train as in AWS's documents; a plain model differentiates the whole batch."""
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    optimizer = tf.keras.optimizers.SGD(0.3)
    is_plain = not isinstance(net, smp.DistributedModel)

    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            errors = zip(tf.nest.flatten(net(x, training=True)), tf.nest.flatten(y), strict=True)
            losses = [tf.reduce_mean(tf.square(output - target)) for output, target in errors]
            loss = tf.add_n([*losses, *net.losses])
        return tape.gradient(loss, net.trainable_variables), loss

    step = forward_backward if is_plain else smp.step(forward_backward)

    @tf.function(autograph=False)
    def train(x: Any, y: Any) -> Any:
        grads, loss = step(x, y)
        means = grads if is_plain else [grad if grad is None else grad.accumulate() for grad in grads]
        pairs = zip(means, net.trainable_variables, strict=True)
        optimizer.apply_gradients([(grad, variable) for grad, variable in pairs if grad is not None])
        return loss if is_plain else loss.reduce_mean()

    x, y = batch(net)
    return [float(train(tf.constant(x), tf.nest.map_structure(tf.constant, y))) for _ in range(STEPS)]
