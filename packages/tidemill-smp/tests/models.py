"""Models for parity tests with Keras 3 and Keras 2: the same code builds each one plain and distributed.

What AutoGraph converts has no `zip(strict=True)`, which it does not know in TensorFlow 2.12.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow.keras_api import tensorflow_variable, tracked_variables

keras = tf.keras
L = keras.layers
FEATURES, CLASSES, TOKENS = 6, 4, 32
plain_function = tf.function(autograph=False)
"""Decorator for plain models, without AutoGraph: it costs time, and their Python does not depend on tensors."""


def _first(count: int, part: int, of: int) -> int:
    """Return the partition of part `part` of `of` equal parts, with `count` partitions."""
    return part * count // of


class Chain(keras.Model):
    """Dense layers one after the other."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions
        self.body = [L.Dense(8, activation="tanh") for _ in range(4)]
        self.head = L.Dense(CLASSES)

    def call(self, x: Any, training: bool | None = None) -> Any:
        for number, layer in enumerate(self.body):
            with smp.partition(_first(self.partitions, number, 4)):
                x = layer(x)
        with smp.partition(self.partitions - 1):
            return self.head(x)


class Skips(Chain):
    """A long skip, and every partition feeds the head."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        seen = []
        for number, layer in enumerate(self.body):
            with smp.partition(_first(self.partitions, number, 4)):
                x = layer(x) + (seen[0] if seen else 0.0)
                seen.append(x)
        with smp.partition(self.partitions - 1):
            return self.head(tf.concat(seen, -1))


class Zigzag(Chain):
    """Layers that alternate between the partitions."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        for number, layer in enumerate(self.body):
            with smp.partition(number % self.partitions):
                x = layer(x)
        return self.head(x)


class Shared(Chain):
    """One layer applied twice on one partition, and one weight tied across partitions."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.twice = L.Dense(8, activation="tanh")

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.body[0](x)
        with smp.partition(self.partitions - 1):
            x = self.twice(self.twice(x))
        x = self.body[1](x)
        with smp.partition(self.partitions - 1):
            x = self.body[2](x) @ tf.transpose(tf.convert_to_tensor(self.body[1].kernel))
            return self.head(x)


class Branches(Chain):
    """A conditional, a loop, and a custom gradient."""

    def call(self, x: Any, training: bool | None = None) -> Any:
        x = self.body[0](x)
        with smp.partition(self.partitions - 1):
            x = tf.cond(tf.reduce_sum(x) > 0.0, lambda: x * 2.0, lambda: x - 1.0)
            x = self.body[1](x)
            _, x = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) + y), (0, x))
        x = _steeper(self.body[2](x))
        with smp.partition(self.partitions - 1):
            return self.head(_steeper(x))


@tf.custom_gradient
def _steeper(x: Any) -> Any:
    return tf.identity(x), lambda upstream: upstream * 1.5


class Language(keras.Model):
    """Embedding, attention, layer and batch norm, dropout, a recurrent layer, regularizers."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions
        self.embedding = L.Embedding(TOKENS, 8)
        self.attention = L.MultiHeadAttention(2, 4, dropout=0.1)
        self.norm = L.LayerNormalization()
        self.batch_norm = L.BatchNormalization()
        self.dropout = L.Dropout(0.2)
        self.recurrent = L.GRU(8, return_sequences=True, kernel_regularizer=keras.regularizers.L2(1e-2))
        self.head = L.Dense(CLASSES, activity_regularizer=keras.regularizers.L2(1e-3))

    def call(self, x: Any, training: bool | None = None) -> Any:
        last = self.partitions - 1
        x = self.embedding(tf.cast(tf.math.floormod(tf.abs(x) * 10.0, TOKENS), tf.int32))
        with smp.partition(last // 2):
            x = self.norm(x + self.attention(x, x, training=training))
        with smp.partition(last):
            x = self.dropout(self.recurrent(x), training=training)
        with smp.partition(last // 2):
            x = self.batch_norm(x, training=training)
        with smp.partition(last):
            return self.head(tf.reduce_mean(x, 1))


class Mixed(Chain):
    """Computes in bfloat16, with weights in float32."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.body = [L.Dense(8, activation="tanh", dtype="mixed_bfloat16") for _ in range(3)]
        self.body.append(L.LayerNormalization(dtype="mixed_bfloat16"))


class Recurrent(keras.Model):
    """An LSTM, and a layer that runs one of two layers."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions
        self.first, self.recurrent, self.either = L.Dense(8), L.LSTM(8, return_sequences=True), Either()
        self.head = L.Dense(CLASSES)

    def call(self, x: Any, training: bool | None = None) -> Any:
        last = self.partitions - 1
        x = self.first(tf.expand_dims(x, -1))
        with smp.partition(last):
            x = self.recurrent(x)
        with smp.partition(last // 2):
            x = self.either(x)
        with smp.partition(last):
            return self.head(tf.reduce_mean(x, 1))


class Either(L.Layer):
    """Runs one layer if the mean is positive, else the other."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = L.Dense(8, activation="tanh"), L.Dense(8)

    def build(self, shape: Any) -> None:
        self.left.build(shape)
        self.right.build(shape)

    def call(self, x: Any) -> Any:
        return tf.cond(tf.reduce_mean(x) > 0.0, lambda: self.left(x), lambda: self.right(x))


class Raw(Chain):
    """Layers with plain tf.Variables, some created in `build`, next to those of `add_weight`."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.scales = [Scale() for _ in range(4)]

    def call(self, x: Any, training: bool | None = None) -> Any:
        for number, (layer, scale) in enumerate(zip(self.body, self.scales)):  # noqa: B905
            with smp.partition(_first(self.partitions, number, 4)):
                x = scale(layer(x))
        with smp.partition(self.partitions - 1):
            return self.head(x)


class Shift(tf.Module):
    """Variables in a module that is not a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.by = {"a": tf.Variable(tf.zeros([8]), name="a"), "b": tf.Variable(tf.fill([8], 0.1), name="b")}


class Scale(L.Layer):
    """Also counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.factors = [tf.Variable(tf.ones([8]), name="factor")]
        self.shift = Shift()
        self.count = tf.Variable(0.0, trainable=False, name="count")

    def build(self, shape: Any) -> None:
        self.late = tf.Variable(tf.random.stateless_normal([8], [1, 2]), name="late")
        super().build(shape)

    def call(self, x: Any) -> Any:
        self.count.assign_add(1.0)
        return x * self.factors[0] + self.shift.by["a"] * self.late + self.shift.by["b"]


MODELS: dict[str, type[keras.Model]] = {
    kind.__name__.lower(): kind for kind in (Chain, Skips, Zigzag, Shared, Branches, Language, Mixed, Recurrent, Raw)
}


def distributed(kind: type[keras.Model]) -> type[keras.Model]:
    """The same class on `smp.DistributedModel`."""
    return type(kind.__name__, (kind, smp.DistributedModel), {})


def batches(count: int, size: int) -> list[tuple[Any, Any]]:
    """Return batches that are equal on all ranks."""
    random = np.random.RandomState(7)
    return [
        (random.randn(size, FEATURES).astype("float32"), random.randn(size, CLASSES).astype("float32"))
        for _ in range(count)
    ]


def trained(model: Any) -> list[Any]:
    """Return the trained variables, including tf.Variables that Keras 3 does not list."""
    listed = {id(tensorflow_variable(variable)) for variable in model.variables}
    others = [variable for variable in tracked_variables(model) if id(variable) not in listed and variable.trainable]
    return list(model.trainable_variables) + others


def loss_of(model: Any, x: Any, y: Any) -> Any:
    """Return the loss of one microbatch."""
    loss = tf.reduce_mean(tf.square(tf.cast(model(x, training=True), tf.float32) - y))
    return tf.add_n([loss, *(tf.cast(part, tf.float32) for part in model.losses)])


def plain_steps(model: Any, optimizer: Any, data: list[tuple[Any, Any]], *, pieces: int = 1) -> list[float]:
    """Train by plain Keras on whole batches in one process; return the losses.

    Args:
        model: Built without the library.
        optimizer: A Keras optimizer.
        data: Batches.
        pieces: Number of pieces in which the model gets a batch. Use more than 1 if results depend on which rows share
            a piece, as with statistics, random layers and conditions. TensorFlow differentiates the mean of the losses.
    """

    @plain_function
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            losses = [loss_of(model, *piece) for piece in zip(tf.split(x, pieces), tf.split(y, pieces), strict=True)]
            loss = losses[0] if pieces == 1 else tf.add_n(losses) / pieces
        grads = tape.gradient(loss, trained(model))
        optimizer.apply_gradients(zip(grads, trained(model), strict=True))
        return loss

    return [float(train(tf.constant(x), tf.constant(y))) for x, y in data]


def numpy_steps(model: Any, optimizer: Any, data: list[tuple[Any, Any]], *, pieces: int) -> list[float]:
    """Like `plain_steps`, but NumPy computes the means of dense gradients in the order of the pieces: bit-equal."""

    @plain_function
    def differentiate(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(model, x, y)
        return [*tape.gradient(loss, trained(model)), loss]

    @plain_function
    def apply(grads: list[Any]) -> None:
        optimizer.apply_gradients(zip(grads, trained(model), strict=True))

    losses = []
    for x, y in data:
        batch = zip(np.split(x, pieces), np.split(y, pieces), strict=True)
        found = [differentiate(*map(tf.constant, piece)) for piece in batch]
        *means, loss = (_mean([part.numpy() for part in parts]) for parts in zip(*found, strict=True))
        apply([tf.constant(mean) for mean in means])
        losses.append(float(loss))
    return losses


def _mean(parts: list[Any]) -> Any:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total * np.float32(1 / len(parts))


def smp_steps(
    model: Any, optimizer: Any, data: list[tuple[Any, Any]], gradients: Callable[..., Any] | None = None
) -> list[float]:
    """Train with the library."""

    @smp.step
    def forward_backward(x: Any, y: Any) -> Any:
        if gradients is not None:
            loss = loss_of(model, x, y)
            return gradients(optimizer, loss, trained(model)), loss
        with tf.GradientTape() as tape:
            loss = loss_of(model, x, y)
        return tape.gradient(loss, trained(model)), loss

    @tf.function
    def train(x: Any, y: Any) -> Any:
        grads, loss = forward_backward(x, y)
        optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], trained(model)))  # noqa: B905
        return loss.reduce_mean()

    return [float(train(tf.constant(x), tf.constant(y))) for x, y in data]
