"""Activation recomputation: bit-equal results in less memory."""

import resource
from typing import Any

import pytest

import ranks

pytestmark = pytest.mark.smp_long

CONFIG = {"auto_partition": False, "default_partition": 0}


def test_results_are_bit_identical() -> None:
    for model in ("zigzag", "language"):
        for kept, again, plain_losses, added in ranks.run(2, train_twice, model, config=CONFIG):
            assert kept == again
            assert again[0] == pytest.approx(plain_losses, rel=2e-5), "as Keras in one process"
            assert added > 0


def train_twice(name: str) -> Any:
    import keras
    import tensorflow as tf

    import models
    import parity
    from sessions import configured
    from smdistributed.modelparallel.tensorflow.engine import engine as engines
    from smdistributed.modelparallel.tensorflow.variables import is_remote

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    found, counts = [], []
    for recompute in ((), (0, 1)):
        with configured(microbatches=4, recompute=recompute):
            keras.utils.set_random_seed(3)
            net = models.distributed(models.MODELS[name])(2)
            plans = noted_plans(engines.engine())
            losses = models.smp_steps(net, keras.optimizers.SGD(0.1), models.batches(5, 16))
            weights = [variable.numpy().tobytes() for variable in net.variables if not is_remote(variable)]
            found.append((losses, weights))
            counts.append(sum(len(segment.nodes) for segment in plans[0].cut.segments))
    keras.utils.set_random_seed(3)
    plain, pieces = models.MODELS[name](2), 1 if name in parity.WHOLE else 4
    losses = models.plain_steps(plain, keras.optimizers.SGD(0.1), models.batches(5, 16), pieces=pieces)
    return *found, losses, counts[1] - counts[0]


def noted_plans(engine: Any) -> list[Any]:
    """Record the plans that an engine makes from now on."""
    plans: list[Any] = []
    make = engine.plan

    def noting(*args: Any, **kwargs: Any) -> Any:
        plans.append(make(*args, **kwargs))
        return plans[-1]

    engine.plan = noting
    return plans


def test_activations_are_not_kept() -> None:
    config = {**CONFIG, "microbatches": 8, "pipeline": "simple"}
    kept, again = (ranks.run(2, peak_of_steps, config={**config, "recompute": which})[0] for which in ([], [0]))
    # 8 microbatches alive, each with 8 layers that keep 2 MB: 128 MB, of which those of one microbatch remain.
    assert kept - again > 64_000_000, (kept, again)


def peak_of_steps() -> int:
    """Return by how many bytes steps raise the peak memory of this rank."""
    import tensorflow as tf

    train = deep_step()
    x = tf.random.stateless_normal((8 * 32_768, 16), (1, 2))
    before = peak()
    train(x)
    train(x)
    return peak() - before


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def deep_step() -> Any:
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp

    class Deep(smp.DistributedModel):
        def __init__(self) -> None:
            super().__init__()
            self.body = [keras.layers.Dense(16, activation="tanh") for _ in range(8)]
            self.head = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            for layer in self.body:
                x = layer(x)
            with smp.partition(1):
                return self.head(x)

    net = Deep()

    @smp.step
    def forward_backward(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(net(x)))
        return tape.gradient(loss, net.trainable_variables), loss

    @tf.function
    def train(x: Any) -> Any:
        grads, loss = forward_backward(x)
        return [grad.accumulate() for grad in grads], loss.reduce_mean()

    return train
