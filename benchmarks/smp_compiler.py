"""Measure the training compiler under model parallelism: steps of two partitions, plain, `xla` and `fused`.

    .venvs/tf-2.21/bin/python benchmarks/smp_compiler.py [--steps N] [MODEL ...]

Each model trains once with two ranks and four microbatches. The compiler's own trial alternates the variants step by
step; a line shows its medians and its decision.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
FORMS = ("transformer", "mlp", "mlp_batchnorm", "wide_mlp", "cnn")


def main() -> None:
    """Run a job for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=FORMS, metavar="MODEL")
    parser.add_argument("--steps", type=int, default=140)
    chosen = parser.parse_args()
    for name in chosen.models:
        launcher = [sys.executable, "-m", "smdistributed.modelparallel.tensorflow.run", "-n", "2", __file__]
        ended = subprocess.run(
            [*launcher, "--rank", name, str(chosen.steps)], stdout=subprocess.PIPE, text=True, check=True
        )
        found = json.loads(ended.stdout)
        times = found["median_ms"]
        ratios = ", ".join(f"{variant} {times[variant] / times['plain']:.2f}" for variant in ("xla", "fused"))
        sys.stdout.write(f"{name}: plain {times['plain']:.1f} ms; relative to plain: {ratios};")
        sys.stdout.write(f" {found['rounds']} rounds; {found['decision']}; compiled in {found['compile_s']} s\n")


def run_rank(name: str, steps: int) -> None:
    """Train a model on this rank; rank 0 prints the state of its step in the report."""
    import numpy as np

    import tidemill_tensorflow

    tidemill_tensorflow.compile_training(max_cost=math.inf)
    import keras
    import tensorflow as tf

    import smdistributed.modelparallel.tensorflow as smp
    from tidemill_tensorflow import compiler

    smp.init({"partitions": 2, "microbatches": 4})
    keras.utils.set_random_seed(3)
    inner, batch = _model(name, keras.layers, keras)
    model, optimizer = smp.DistributedModel.wrap(inner), keras.optimizers.Adam(1e-4)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @smp.step
    def gradients_of(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(features, training=True))
        return tape.gradient(loss, model.trainable_variables), loss

    @tf.function
    def train_step(features: Any, labels: Any) -> Any:
        gradients, loss = gradients_of(features, labels)
        means = [gradient.accumulate() for gradient in gradients]
        optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
        return loss.reduce_mean()

    generator = np.random.default_rng(0)
    features = tf.constant(generator.normal(size=(batch, *inner.input_shape[1:])), tf.float32)
    labels = tf.constant(generator.integers(0, 10, batch))
    for _ in range(steps):
        float(train_step(features, labels))
        compiler._sessions[0].wait_for_background()
    if smp.rank() == 0:
        sys.stdout.write(json.dumps(compiler._sessions[0].as_dict()["functions"][0]["shapes"][0]) + "\n")


def _model(name: str, layers: Any, keras: Any) -> tuple[Any, int]:
    """Return a model before its distribution, and the number of rows of a batch."""
    if name == "transformer":
        inputs = keras.Input((64, 128))
        hidden = inputs
        for _ in range(4):
            attended = layers.MultiHeadAttention(4, 32, dropout=0.1)(hidden, hidden)
            hidden = layers.LayerNormalization()(hidden + attended)
            inner = layers.Dropout(0.1)(layers.Dense(128)(layers.Dense(512, activation="gelu")(hidden)))
            hidden = layers.LayerNormalization()(hidden + inner)
        return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling1D()(hidden))), 16
    if name == "cnn":
        convolutions = [layers.Conv2D(size, 3, activation="relu") for size in (32, 32, 64)]
        return keras.Sequential(
            [keras.Input((28, 28, 1)), *convolutions, layers.MaxPool2D(4), layers.Flatten(), layers.Dense(10)]
        ), 32
    width, batch = {"mlp": (512, 256), "mlp_batchnorm": (512, 256), "wide_mlp": (1536, 64)}[name]
    extra = [layers.BatchNormalization, lambda: layers.Dropout(0.1)] if name == "mlp_batchnorm" else []
    hidden = [
        each for _ in range(4) for each in (layers.Dense(width, activation="gelu"), *(build() for build in extra))
    ]
    return keras.Sequential([keras.Input((256,)), *hidden, layers.Dense(10)]), batch


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_rank(sys.argv[2], int(sys.argv[3]))
    else:
        main()
