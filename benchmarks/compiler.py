"""Steady steps with the training compiler against plain ones and ``jit_compile=True``, model by model.

Run with an environment that has TensorFlow: ``python compiler.py [MODEL ...]``. In each round every way trains a block
of steps, in turning order. Prints the medians of the paired ratios way / plain, for the compiler's choice with the
bootstrapped 95 % interval of the median.

Ways: ``plain``; ``jit`` (Keras's ``jit_compile=True``); ``ours`` (the compiler, decided).
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import tidemill_tensorflow

tidemill_tensorflow.compile_training()

import keras  # noqa: E402
import numpy as np  # noqa: E402

from tidemill_tensorflow import compiler  # noqa: E402

layers = keras.layers
ROUNDS = 15
BLOCK_S = 0.25


def mlp_dropout() -> tuple[Any, tuple[int, ...]]:
    """Three dense layers with BatchNorm and dropout."""
    hidden = [
        layer
        for _ in range(3)
        for layer in (layers.Dense(512, activation="gelu"), layers.BatchNormalization(), layers.Dropout(0.1))
    ]
    return keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)]), (256, 256)


def mlp() -> tuple[Any, tuple[int, ...]]:
    """Three dense layers."""
    hidden = [layers.Dense(512, activation="relu") for _ in range(3)]
    return keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)]), (256, 256)


def cnn() -> tuple[Any, tuple[int, ...]]:
    """Two convolutions."""
    parts = [
        layers.Conv2D(32, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPool2D(),
        layers.Flatten(),
        layers.Dense(10),
    ]
    return keras.Sequential([keras.Input((32, 32, 3)), *parts]), (32, 32, 32, 3)


def transformer() -> tuple[Any, tuple[int, ...]]:
    """Two blocks of 128, 64 positions."""
    inputs = keras.Input((64, 128))
    hidden = inputs
    for _ in range(2):
        hidden = layers.LayerNormalization()(hidden + layers.MultiHeadAttention(4, 32)(hidden, hidden))
        inner = layers.Dense(128)(layers.Dense(512, activation="gelu")(hidden))
        hidden = layers.LayerNormalization()(hidden + inner)
    outputs = layers.Dense(10)(layers.GlobalAveragePooling1D()(hidden))
    return keras.Model(inputs, outputs), (16, 64, 128)


def lstm() -> tuple[Any, tuple[int, ...]]:
    """Two LSTMs of 64, 50 positions."""
    inputs = keras.Input((50, 32))
    hidden = layers.LSTM(64)(layers.LSTM(64, return_sequences=True)(inputs))
    return keras.Model(inputs, layers.Dense(10)(hidden)), (32, 50, 32)


def embedding() -> tuple[Any, tuple[int, ...]]:
    """A recommender: 20 ids of 20,000, and dense layers."""
    inputs = keras.Input((20,), dtype="int32")
    hidden = layers.Flatten()(layers.Embedding(20000, 64)(inputs))
    for _ in range(3):
        hidden = layers.Dense(256, activation="relu")(hidden)
    return keras.Model(inputs, layers.Dense(10)(hidden)), (128, 20)


MODELS = {
    "mlp_dropout": mlp_dropout,
    "mlp": mlp,
    "cnn": cnn,
    "transformer": transformer,
    "lstm": lstm,
    "embedding": embedding,
}


class Way:
    """Train one model in one way."""

    def __init__(self, build: Any, *, jit: Any) -> None:
        keras.utils.set_random_seed(0)
        self.model, shape = build()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.model.compile("adam", loss, jit_compile=jit)
        generator = np.random.default_rng(0)
        integers = self.model.input_dtype if hasattr(self.model, "input_dtype") else self.model.inputs[0].dtype
        features: Any = generator.random(shape).astype("float32")
        if "int" in str(integers):
            features = generator.integers(0, 20000, shape).astype("int32")
        self.batch = (features, generator.integers(0, 10, shape[0]))

    def steps(self, number: int) -> float:
        """Train, and return the seconds of a step."""
        begin = time.perf_counter()
        for _ in range(number):
            self.model.train_on_batch(*self.batch)
        return (time.perf_counter() - begin) / number


def main(names: list[str]) -> None:
    """Measure and print."""
    gains = []
    for name in names:
        ways = {
            "plain": Way(MODELS[name], jit=False),
            "jit": Way(MODELS[name], jit=True),
            "ours": Way(MODELS[name], jit="auto"),
        }
        for way in ways.values():
            way.steps(3)
        for _ in range(70):
            ways["ours"].steps(1)
            compiler._sessions[0].settle()
        number = max(1, int(BLOCK_S / ways["plain"].steps(3)))
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(ROUNDS):
            for way in list(ways) if turn % 2 else reversed(list(ways)):
                times[way].append(ways[way].steps(number))
        ratios = [ours / plain for ours, plain in zip(times["ours"], times["plain"], strict=True)]
        by_hand = [jit / plain for jit, plain in zip(times["jit"], times["plain"], strict=True)]
        low, high = interval(ratios)
        gains.append(1 / statistics.median(ratios))
        print(
            f"{name:12} plain {1e3 * statistics.median(times['plain']):7.2f} ms"
            f"  jit/plain {statistics.median(by_hand):5.2f}"
            f"  ours/plain {statistics.median(ratios):5.2f} [{low:.2f}, {high:.2f}]",
            flush=True,
        )
    print(f"geometric mean of plain / ours: {statistics.geometric_mean(gains):.2f}")


def interval(ratios: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, bootstrapped."""
    generator = random.Random(0)
    medians = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODELS))
