"""Train a model in partitions, with or without the compiler: ``pipelines.py on|off FORM``.

Each rank prints one JSON object with its losses, its variables and the functions in the compiler's report.
"""

import json
import os
import sys
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np

import tidemill_tensorflow

SWITCH, FORM = sys.argv[1:]
if SWITCH == "on":
    tidemill_tensorflow.compile_training()
    from tidemill_tensorflow.compiler.variants import trials

    trials.MAX_ROUNDS = trials.MAX_SHORT_ROUNDS = trials.MIN_ROUNDS

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

import smdistributed.modelparallel.tensorflow as smp  # noqa: E402

if FORM == "horovod":
    import horovod.tensorflow as hvd

STEPS = 64
REPLICAS = {
    "replicas": {"ddp": True},
    "sharded": {"ddp": True, "shard_optimizer_state": True},
    "horovod": {"horovod": True},
}
"""Options of `smp.init`, by form, for two replicas of the same model."""
RANDOM = np.random.default_rng(0)
ROWS, LABELS = RANDOM.normal(size=(STEPS * 16, 8)), RANDOM.integers(0, 4, STEPS * 16)
layers = keras.layers


@keras.saving.register_keras_serializable("tests")
class InPython(layers.Layer):  # type: ignore[misc]
    """Adds a small number that Python computes."""

    def call(self, rows: Any) -> Any:
        """Return rows of the same shape."""
        added = tf.numpy_function(lambda values: 0.01 * np.tanh(values), [rows], rows.dtype)
        added.set_shape(rows.shape)
        return rows + tf.stop_gradient(added)


@keras.saving.register_keras_serializable("tests")
class SizeByValue(layers.Layer):  # type: ignore[misc]
    """Repeats rows as often as they say, which is once; XLA has the op, but needs a constant."""

    def call(self, rows: Any) -> Any:
        """Return rows of the same shape."""
        times = 1 + tf.cast(0 * tf.reduce_max(rows), tf.int32)
        return tf.ensure_shape(tf.tile(rows, [times, 1]), rows.shape)


@keras.saving.register_keras_serializable("tests")
class NoiseByState(layers.Layer):  # type: ignore[misc]
    """Adds noise from an op with a state of its own."""

    def call(self, rows: Any) -> Any:
        """Return rows of the same shape."""
        return rows + 0.01 * tf.random.normal(tf.shape(rows), dtype=rows.dtype)


def distributed(*, last: Any = None) -> Any:
    """Return a model, with `last` in the last partition."""
    keras.utils.set_random_seed(3)
    hidden = [
        each
        for width in (24, 16)
        for each in (layers.Dense(width, activation="gelu"), layers.BatchNormalization(), layers.Dropout(0.2))
    ]
    if last is not None:
        hidden.append(last)
    net = keras.Sequential([keras.Input([8]), *hidden, layers.Dense(4)])
    places = {layer.name: 0 if layer in net.layers[:3] else 1 for layer in net.layers}
    return smp.DistributedModel.wrap(net, places if FORM != "one" else None)


def wait_for_compiler() -> None:
    """Wait for the compiler's background thread."""
    if SWITCH == "on":
        from tidemill_tensorflow import compiler

        compiler._sessions[0].wait_for_background()


def loop(model: Any) -> list[float]:
    """Train in a loop of the script."""
    optimizer = keras.optimizers.Adam(0.01)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @smp.step
    def gradients_of(rows: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(rows, training=True))
        return tape.gradient(loss, model.trainable_variables), loss

    @tf.function
    def train_step(rows: Any, labels: Any) -> Any:
        gradients, loss = gradients_of(rows, labels)
        means = [gradient.accumulate() for gradient in gradients]
        if FORM == "horovod":
            means = [hvd.allreduce(mean) for mean in means]
        optimizer.apply_gradients(zip(means, model.trainable_variables, strict=True))
        return loss.reduce_mean()

    losses = []
    for step in range(STEPS):
        own = slice(step * 16 + 8 * smp.dp_rank(), step * 16 + 8 * smp.dp_rank() + 8)
        losses.append(float(train_step(tf.constant(ROWS[own]), tf.constant(LABELS[own]))))
        wait_for_compiler()
    return losses


def fit(model: Any) -> list[float]:
    """Train by `fit`."""
    losses = []

    class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(float(logs["loss"]))
            wait_for_compiler()

    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(ROWS, LABELS, batch_size=16, epochs=1, verbose=0, callbacks=[Recorder()])
    return losses


def main() -> None:
    """Train, and print what this rank found."""
    config = {"partitions": 1 if FORM == "one" else 2, "microbatches": 2, "measure_layers": False}
    smp.init(config | REPLICAS.get(FORM, {}))
    keras.backend.set_floatx("float64")
    last = {"sizes": SizeByValue, "noise": NoiseByState}.get(FORM, InPython if FORM in REPLICAS else None)
    model = distributed(last=last() if last is not None else None)
    losses = fit(model) if FORM == "fit" else loop(model)
    variables = [each.numpy().tolist() for each in smp.local_variables(model) if each.trainable]
    found: dict[str, Any] = {"rank": smp.rank(), "losses": losses, "variables": variables, "functions": []}
    if SWITCH == "on":
        from tidemill_tensorflow import compiler

        found["functions"] = compiler._sessions[0].as_dict()["functions"]
    sys.stdout.write(json.dumps(found) + "\n")


main()
