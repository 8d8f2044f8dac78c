"""The models of `compiler.py`. The list was fixed before its first run."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if importlib.util.find_spec("tf_keras") is not None:  # without it, TensorFlow 2.15 would have no tf.keras
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # for transformers; ``import keras`` is still Keras 3

import keras
import numpy as np
import tensorflow as tf

__all__ = ["MODELS", "Problem", "gan_step"]

if keras.__version__.startswith("2."):
    keras = tf.keras  # the package of Keras 2 itself has the optimizers of TensorFlow 1
layers = keras.layers
BATCHES = 8


@dataclass
class Problem:
    """A model with data.

    Attributes:
        model: A Keras model before `compile`.
        features: An array, or arrays by name, with the rows of `BATCHES` batches.
        labels: Classes of the rows; None if the model computes its own loss.
        batch: Number of rows per batch.
    """

    model: Any
    features: Any
    labels: Any
    batch: int


def mlp() -> Problem:
    """Three dense layers."""
    hidden = [layers.Dense(512, activation="relu") for _ in range(3)]
    return _dense_problem(keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)]), 256)


def mlp_dropout() -> Problem:
    """Three dense layers with dropout."""
    hidden = [each for _ in range(3) for each in (layers.Dense(512, activation="gelu"), layers.Dropout(0.1))]
    return _dense_problem(keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)]), 256)


def mlp_batchnorm() -> Problem:
    """Three dense layers with BatchNorm and dropout."""
    hidden = [
        each
        for _ in range(3)
        for each in (layers.Dense(512, activation="gelu"), layers.BatchNormalization(), layers.Dropout(0.1))
    ]
    return _dense_problem(keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)]), 256)


def cnn() -> Problem:
    """Two convolutions."""
    parts = [
        layers.Conv2D(32, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPool2D(),
        layers.Flatten(),
        layers.Dense(10),
    ]
    return _dense_problem(keras.Sequential([keras.Input((32, 32, 3)), *parts]), 32)


def resnet50() -> Problem:
    """ResNet50 of Keras, images of 64x64."""
    return _dense_problem(keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10), 8)


def mobilenet() -> Problem:
    """MobileNetV3 (small) of Keras, images of 64x64."""
    return _dense_problem(keras.applications.MobileNetV3Small(weights=None, input_shape=(64, 64, 3), classes=10), 16)


def lstm() -> Problem:
    """Two LSTMs of 64, 50 positions."""
    inputs = keras.Input((50, 32))
    hidden = layers.LSTM(64)(layers.LSTM(64, return_sequences=True)(inputs))
    return _dense_problem(keras.Model(inputs, layers.Dense(10)(hidden)), 32)


def transformer() -> Problem:
    """Two blocks of 128, 64 positions."""
    inputs = keras.Input((64, 128))
    hidden = inputs
    for _ in range(2):
        hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(4, 32)(hidden, hidden))
        inner = layers.Dense(128)(layers.Dense(512, activation="gelu")(hidden))
        hidden = layers.LayerNormalization()(hidden + inner)
    return _dense_problem(keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(hidden))), 16)


def recommender() -> Problem:
    """Twenty ids of 20,000 and one of 5,000, embedded, then dense layers."""
    items, user = keras.Input((20,), dtype="int32", name="items"), keras.Input((1,), dtype="int32", name="user")
    parts = [layers.Flatten()(layers.Embedding(20000, 64)(items)), layers.Flatten()(layers.Embedding(5000, 64)(user))]
    hidden = layers.Concatenate()(parts)
    for _ in range(3):
        hidden = layers.Dense(256, activation="relu")(hidden)
    rows, generator = 128 * BATCHES, np.random.default_rng(0)
    features = {
        "items": generator.integers(0, 20000, (rows, 20)).astype("int32"),
        "user": generator.integers(0, 5000, (rows, 1)).astype("int32"),
    }
    model = keras.Model({"items": items, "user": user}, layers.Dense(10)(hidden))
    return Problem(model, features, generator.integers(0, 10, rows), 128)


def bert() -> Problem:
    """TFBertForSequenceClassification, two layers of 128, 64 positions."""
    transformers = importlib.import_module("transformers")
    config = transformers.BertConfig(
        vocab_size=2000, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512
    )
    return _text_problem(transformers.TFBertForSequenceClassification(config), 8)


def distilbert() -> Problem:
    """TFDistilBertForSequenceClassification, two layers of 128, 64 positions."""
    transformers = importlib.import_module("transformers")
    config = transformers.DistilBertConfig(vocab_size=2000, dim=128, n_layers=2, n_heads=4, hidden_dim=512)
    return _text_problem(transformers.TFDistilBertForSequenceClassification(config), 8)


def gan_step(jit_compile: bool | None) -> Callable[[], Any]:
    """Return the step of a GAN: one function that trains generator and discriminator, each with its own optimizer."""
    keras.utils.set_random_seed(0)
    make = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(256, activation="relu"),
            layers.Dense(512, activation="relu"),
            layers.Dense(784),
        ]
    )
    judge = keras.Sequential(
        [
            keras.Input((784,)),
            layers.Dense(512, activation="gelu"),
            layers.Dropout(0.3),
            layers.Dense(256, activation="gelu"),
            layers.Dense(1),
        ]
    )
    optimizers = [keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-4)]
    for optimizer, model in zip(optimizers, (make, judge), strict=True):
        optimizer.build(model.trainable_variables)
    loss_function = keras.losses.BinaryCrossentropy(from_logits=True)

    @tf.function(jit_compile=jit_compile)
    def train_step(real: Any, noise: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            drawn = make(noise, training=True)
            of_real, of_drawn = judge(real, training=True), judge(drawn, training=True)
            make_loss = loss_function(tf.ones_like(of_drawn), of_drawn)
            judge_loss = loss_function(tf.ones_like(of_real), of_real) + loss_function(
                tf.zeros_like(of_drawn), of_drawn
            )
        for optimizer, loss, model in zip(optimizers, (make_loss, judge_loss), (make, judge)):  # noqa: B905
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905 - AutoGraph of 2.12 refuses it
        return make_loss, judge_loss

    generator = np.random.default_rng(0)
    real = tf.constant(generator.random((128, 784)).astype("float32"))
    noise = tf.constant(generator.random((128, 64)).astype("float32"))
    return lambda: train_step(real, noise)


def _dense_problem(model: Any, batch: int) -> Problem:
    generator = np.random.default_rng(0)
    features = generator.random((batch * BATCHES, *model.input_shape[1:])).astype("float32")
    return Problem(model, features, generator.integers(0, 10, batch * BATCHES), batch)


def _text_problem(model: Any, batch: int) -> Problem:
    generator = np.random.default_rng(0)
    rows = batch * BATCHES
    features = {
        "input_ids": generator.integers(0, 2000, (rows, 64)),
        "attention_mask": np.ones((rows, 64), "int64"),
        "labels": generator.integers(0, 2, rows),
    }
    return Problem(model, features, None, batch)


MODELS: dict[str, Callable[[], Problem] | None] = {
    "mlp": mlp,
    "mlp_dropout": mlp_dropout,
    "mlp_batchnorm": mlp_batchnorm,
    "cnn": cnn,
    "resnet50": resnet50,
    "mobilenet": mobilenet,
    "lstm": lstm,
    "transformer": transformer,
    "bert": bert,
    "distilbert": distilbert,
    "recommender": recommender,
    "gan": None,
}
"""The models by name. The GAN is a loop, `gan_step`, not a Keras model."""
