"""On a rank: models with partitions and replicas; each replica trains on its share of every batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import models
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow.variables import is_remote

keras = tf.keras
STEPS, BATCH = 5, 16

Apply = Callable[[Any, Any, list[Any], Any], None]
"""(model, optimizer, gradients over the microbatches, whether it is the first batch)."""


class Net(keras.Model):
    """An embedding, whose gradients are sparse, and dense layers on both partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(5, 6)
        self.body = keras.layers.Dense(8, activation="tanh")
        self.head = keras.layers.Dense(models.CLASSES)

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = x + tf.reduce_sum(self.embedding(tf.cast(tf.math.floormod(x * 10.0, 5.0), tf.int32)), 1)
        x = self.body(x)
        with smp.partition(smp.mp_size() - 1):
            return self.head(x)


def share(batch: Any) -> Any:
    """Return the rows of a batch on which this rank's replica trains."""
    return np.split(batch, smp.dp_size())[smp.dp_rank()]


def train(
    optimizer: Any, apply: Apply, *, seed: int = 3, wrap_tape: Any = lambda tape: tape, kind: type[keras.Model] = Net
) -> Any:
    """Train on this replica's share of the batches; return the model, and the mean loss of each step over replicas."""
    keras.backend.clear_session()  # resets the counters of names: only rank 0 has built the plain model
    keras.utils.set_random_seed(seed)
    net = models.distributed(kind)()

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(net, x, y)
        return wrap_tape(tape).gradient(loss, net.trainable_variables), loss

    @tf.function
    def step(x: Any, y: Any, first_batch: Any) -> Any:
        grads, loss = forward_backward(x, y)
        apply(net, optimizer, [grad.accumulate() for grad in grads], first_batch)
        return loss.reduce_mean()

    losses = []
    for number, (x, y) in enumerate(models.batches(STEPS, BATCH)):
        mine = float(step(tf.constant(share(x)), tf.constant(share(y)), tf.constant(number == 0)))
        losses.append(float(np.mean(smp.allgather(mine, smp.WORLD))))
    return net, losses


def apply_all(model: Any, optimizer: Any, grads: list[Any], first_batch: Any) -> None:
    """Apply all gradients unchanged."""
    del first_batch
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def train_plain(
    optimizer: Any, apply: Apply = apply_all, *, seed: int = 3, finish: Callable[[Any, Any], None] | None = None
) -> Any:
    """Train the same model by plain Keras on whole batches, on rank 0, and send the result to all ranks.

    Args:
        optimizer: A Keras optimizer.
        apply: Applies gradients, without the library.
        seed: Seed of the weights.
        finish: Called with model and optimizer at the end.

    Returns:
        The weights, and the losses.
    """
    if smp.rank() != 0:
        return smp.recv_from(0, smp.RankType.WORLD_RANK)
    keras.utils.set_random_seed(seed)
    net = Net()

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = models.loss_of(net, x, y)
        apply(net, optimizer, tape.gradient(loss, net.trainable_variables), False)
        return loss

    losses = [float(step(tf.constant(x), tf.constant(y))) for x, y in models.batches(STEPS, BATCH)]
    if finish is not None:
        finish(net, optimizer)
    result = [np.asarray(variable) for variable in net.variables], losses
    smp.broadcast(result, smp.WORLD)
    return result


def held(net: Any) -> dict[int, Any]:
    """Return the values of a model that this rank holds, by index."""
    return {place: np.array(one) for place, one in enumerate(net.variables) if not is_remote(one)}


def differences(net: Any, weights: list[Any]) -> dict[int, float]:
    """Return the gap of each variable on this rank to the weights of the plain model, by index."""
    return {place: float(np.abs(value - weights[place]).max()) for place, value in held(net).items()}
