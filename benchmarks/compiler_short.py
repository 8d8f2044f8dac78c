"""Short and varied trainings, as whole scripts: with the compiler they must not become slower.

Run ``python compiler_short.py NAME plain|ours`` for one of them; `compiler.py` compares both ways.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

__all__ = ["SHORT"]


def convnet() -> None:
    """Train a convnet for digits: 90 steps of 128 images."""
    import keras
    import numpy as np

    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            *(each for size in (32, 64) for each in (layers.Conv2D(size, 3, activation="relu"), layers.MaxPool2D())),
            layers.Flatten(),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    generator = np.random.default_rng(0)
    images, labels = generator.random((30 * 128, 28, 28, 1), "float32"), generator.integers(0, 10, 30 * 128)
    model.fit(images, labels, batch_size=128, epochs=3, verbose=0)


def vae() -> None:
    """Train a variational autoencoder with a `train_step` of its own: 72 steps of 128 images."""
    import keras
    import numpy as np
    import tensorflow as tf

    layers = keras.layers
    convolve = {"strides": 2, "padding": "same", "activation": "relu"}
    encoder = [layers.Conv2D(size, 3, **convolve) for size in (32, 64)]
    decoder = [layers.Conv2DTranspose(size, 3, **convolve) for size in (64, 32)]

    class Autoencoder(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = keras.Sequential([*encoder, layers.Flatten(), layers.Dense(16, "relu"), layers.Dense(4)])
            last = layers.Conv2DTranspose(1, 3, padding="same", activation="sigmoid")
            first = [layers.Dense(7 * 7 * 64, "relu"), layers.Reshape((7, 7, 64))]
            self.decoder = keras.Sequential([*first, *decoder, last])
            self.loss_tracker = keras.metrics.Mean("loss")

        def train_step(self, images: Any) -> Any:
            with tf.GradientTape() as tape:
                mean, log_variance = tf.split(self.encoder(images), 2, axis=1)
                drawn = mean + tf.exp(0.5 * log_variance) * tf.random.normal(tf.shape(mean))
                error = keras.losses.binary_crossentropy(images, self.decoder(drawn))
                divergence = 1 + log_variance - tf.square(mean) - tf.exp(log_variance)
                loss = tf.reduce_mean(tf.reduce_sum(error, axis=(1, 2))) - 0.5 * tf.reduce_mean(divergence)
            gradients = tape.gradient(loss, self.trainable_weights)
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights, strict=True))
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

    model = Autoencoder()
    model.compile(keras.optimizers.Adam())
    model.fit(np.random.default_rng(0).random((24 * 128, 28, 28, 1), "float32"), batch_size=128, epochs=3, verbose=0)


def search() -> None:
    """Search over 30 small models, each trained for up to ten epochs of 16 steps with early stopping."""
    import keras
    import numpy as np

    generator = np.random.default_rng(0)
    features = generator.random((640, 20), "float32")
    labels = features @ generator.random((20, 1), "float32")
    for number in range(30):
        keras.backend.clear_session()
        hidden = [keras.layers.Dense(8 * (1 + number % 6), "relu") for _ in range(1 + number % 3)]
        model = keras.Sequential([keras.Input((20,)), *hidden, keras.layers.Dropout(0.1), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(10 ** -(1 + number % 3)), "mse")
        stop = keras.callbacks.EarlyStopping(patience=2)
        split = {"validation_split": 0.2, "batch_size": 32, "verbose": 0, "callbacks": [stop]}
        model.fit(features, labels, epochs=10, **split)


def gru() -> None:
    """Train a GRU on texts of 40 lengths in a loop, which is traced for each length: 400 steps."""
    import keras
    import numpy as np
    import tensorflow as tf

    model = keras.Sequential([keras.layers.Embedding(1000, 32), keras.layers.GRU(32), keras.layers.Dense(2)])
    model.build((None, None))
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function(reduce_retracing=True)
    def train_step(texts: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(texts, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    generator = np.random.default_rng(0)
    for step in range(400):
        texts = generator.integers(0, 1000, (16, 10 + 7 * step % 40))
        train_step(tf.constant(texts), tf.constant(generator.integers(0, 2, 16)))


def reinforcement() -> None:
    """Learn to balance a number near zero by policy gradients: 1,500 steps, each after an action chosen eagerly."""
    import keras
    import numpy as np
    import tensorflow as tf

    policy = keras.Sequential([keras.Input((4,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam(1e-3)
    optimizer.build(policy.trainable_variables)

    @tf.function
    def act(state: Any) -> Any:
        return tf.random.categorical(policy(state), 1)[:, 0]

    @tf.function
    def train_step(state: Any, action: Any, reward: Any) -> Any:
        with tf.GradientTape() as tape:
            chosen = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=action, logits=policy(state))
            loss = tf.reduce_mean(chosen * reward)
        gradients = tape.gradient(loss, policy.trainable_variables)
        optimizer.apply_gradients(zip(gradients, policy.trainable_variables, strict=True))
        return loss

    generator = np.random.default_rng(0)
    state = generator.normal(size=(8, 4)).astype("float32")
    for _ in range(1500):
        action = act(tf.constant(state))
        push = 0.1 * (2 * action.numpy()[:, None] - 1)
        state = (0.95 * state + push + 0.05 * generator.normal(size=(8, 4))).astype("float32")
        train_step(tf.constant(state), action, tf.constant(1 - np.abs(state[:, 0])))


def recurrent_noise() -> None:
    """Train a small text model of tf_keras with dropout, which draws by a state: 300 steps of two lengths."""
    import numpy as np
    import tf_keras

    layers = tf_keras.layers
    recurrent = [layers.Bidirectional(layers.LSTM(24)), layers.Dropout(0.3)]
    model = tf_keras.Sequential([layers.Embedding(500, 16), *recurrent, layers.Dense(3)])
    model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    generator = np.random.default_rng(0)
    for length in (20, 35):
        texts, labels = generator.integers(0, 500, (50 * 16, length)), generator.integers(0, 3, 50 * 16)
        model.fit(texts, labels, batch_size=16, epochs=3, verbose=0)


SHORT: dict[str, Callable[[], None]] = {
    "convnet, 90 steps": convnet,
    "VAE, 72 steps": vae,
    "search over 30 models": search,
    "GRU, 40 lengths": gru,
    "reinforcement, 1,500 steps": reinforcement,
    "tf_keras with dropout, 300 steps": recurrent_noise,
}
"""The scripts by name."""


if __name__ == "__main__":
    if sys.argv[2] == "ours":
        import tidemill_tensorflow

        tidemill_tensorflow.compile_training()
    else:
        import tensorflow  # noqa: F401 - the compiler imports it too
    SHORT[sys.argv[1]]()
