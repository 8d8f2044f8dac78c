"""Models in partitions and replicas at once, on a rank: each replica trains on its share of every batch."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import models
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign

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
    """The rows of a batch that this rank's replica trains on."""
    return np.split(batch, smp.dp_size())[smp.dp_rank()]


def train(
    optimizer: Any, apply: Apply, *, seed: int = 3, wrap_tape: Any = lambda tape: tape, kind: type[keras.Model] = Net
) -> Any:
    """Train on this rank's share of the batches; the model, and the loss of each step averaged over the replicas."""
    keras.backend.clear_session()  # names count on: rank 0 alone has made a model in one process
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
    """Update by all gradients as they are."""
    del first_batch
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def train_plain(
    optimizer: Any, apply: Apply = apply_all, *, seed: int = 3, finish: Callable[[Any, Any], None] | None = None
) -> Any:
    """The same model by Keras alone, in one process on whole batches; rank 0 does it for all.

    Args:
        optimizer: Of Keras.
        apply: Calls nothing of the library.
        seed: Of the weights.
        finish: Called with model and optimizer in the end.

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
    """What this rank holds of a model, by place."""
    return {place: np.array(one) for place, one in enumerate(net.variables) if not is_foreign(one)}


def differences(net: Any, weights: list[Any]) -> dict[int, float]:
    """How far what this rank holds of a model is from the weights of the same model in one process, by place."""
    return {place: float(np.abs(value - weights[place]).max()) for place, value in held(net).items()}
