"""Train models of several forms, with the training compiler or with TensorFlow alone.

Prints one JSON object: for each form its losses, the sums of its weights and, with the compiler, the steps by variant.
Runs on every TensorFlow from 2.12 on, with Keras 2 or 3.
"""

import argparse
import functools
import json
import math
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

EPOCHS, BATCH, ROWS = 3, 16, 320

parser = argparse.ArgumentParser()
parser.add_argument("--variant", default="alone", help="xla or fused, or alone to train without the compiler")
parser.add_argument("--model_dir", help="not used; estimators pass it")
parser.add_argument("--forms", default="", help="names of the forms, separated by commas; all by default")
options = parser.parse_args()
VARIANT = options.variant
GROUPS = "plain"

if VARIANT != "alone":
    from tidemill_tensorflow import compiler

    compiler.compile_training(max_cost=math.inf)  # has no effect in a job that asks for the compiler

    from tidemill_tensorflow.compiler.several import keras_batches

    keras_batches.MAX_STEP_S = math.inf  # on a busy machine, no step would be short enough for groups
    SESSION = compiler._sessions[0]

    def stored_decision(key):
        """An earlier job is said to have chosen, so that the choice does not depend on times."""
        return None if key.startswith("function ") else GROUPS if "at once" in key else VARIANT

    SESSION.stored_decision = stored_decision

layers, losses, optimizers = tf.keras.layers, tf.keras.losses, tf.keras.optimizers
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
tf.keras.backend.set_floatx("float64")


def wait_for_compiler():
    if VARIANT != "alone":
        SESSION.wait_for_background()


def data():
    generator = np.random.default_rng(0)
    return generator.normal(size=(ROWS, 24)), generator.integers(0, 5, ROWS)


def dense():
    tf.keras.utils.set_random_seed(3)
    hidden = inputs = tf.keras.Input((24,))
    for _ in range(2):
        hidden = layers.Dense(32, activation="gelu")(hidden)
        hidden = layers.Dropout(0.2)(layers.BatchNormalization()(hidden))
    return tf.keras.Model(inputs, layers.Dense(5)(layers.GaussianNoise(0.01)(hidden)))


def convolutions():
    tf.keras.utils.set_random_seed(3)
    inputs = tf.keras.Input((24,))
    hidden = layers.Conv2D(8, 3, padding="same", activation="relu")(layers.Reshape((4, 6, 1))(inputs))
    hidden = layers.Flatten()(layers.MaxPool2D()(hidden))
    return tf.keras.Model(inputs, layers.Dense(5)(hidden))


def recurrent():
    tf.keras.utils.set_random_seed(3)
    inputs = tf.keras.Input((24,), batch_size=BATCH)
    hidden = layers.LSTM(8, return_sequences=True)(layers.Reshape((6, 4))(inputs))
    return tf.keras.Model(inputs, layers.Dense(5)(layers.GRU(8)(hidden)))


class Waiting(tf.keras.callbacks.Callback):
    """Records the losses of batches, and waits for the compiler after the first ones."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        if len(self.losses) < 12:
            wait_for_compiler()


class WaitingByEpoch(tf.keras.callbacks.Callback):
    """The same for epochs, without hooks for batches."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(float(logs["loss"]))
        wait_for_compiler()


def fit(build, callback=Waiting, scope=None):
    with scope or tf.name_scope("alone"):
        model = build()
        model.compile(optimizers.Adam(1e-3), losses.SparseCategoricalCrossentropy(from_logits=True))
    recorded = callback()
    model.fit(*data(), batch_size=BATCH, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[recorded])
    return recorded.losses, model.get_weights()


def fit_in_groups():
    """Eight batches in one call of the step."""
    global GROUPS
    GROUPS = "at_once"
    try:
        return fit(dense, WaitingByEpoch)
    finally:
        GROUPS = "plain"


def train_on_batch():
    model = dense()
    model.compile(optimizers.Adam(1e-3), losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    found = []
    for features, labels in batches():
        found.append(float(model.train_on_batch(features, labels)[0]))
        wait_for_compiler()
    return found, model.get_weights()


def batches():
    return tf.data.Dataset.from_tensor_slices(data()).batch(BATCH, drop_remainder=True).repeat(EPOCHS)


def loop():
    """A step with a variable among its arguments, embeddings, weight decay, and a structure with None as its result."""
    tf.keras.utils.set_random_seed(5)
    table = tf.Variable(np.random.default_rng(1).normal(size=(5, 24)))
    model, counter = dense(), tf.Variable(0, dtype=tf.int64)
    optimizer = optimizers.AdamW(1e-3)
    loss_of = losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(features, labels, counted):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(features + 0.1 * tf.nn.embedding_lookup(table, labels), training=True))
            loss += 1e-3 * tf.nn.l2_loss(table)
        gradients = tape.gradient(loss, [*model.trainable_variables, table])
        optimizer.apply_gradients(zip(gradients[:-1], model.trainable_variables))  # noqa: B905 - Python 3.9 runs it, too
        table.assign_sub(0.01 * tf.convert_to_tensor(gradients[-1]))
        counted.assign_add(1)
        return {"loss": loss, "none": None, "rows": (tf.shape(labels)[0], [loss * 2])}

    found = []
    for features, labels in batches():
        result = train_step(features, labels, counter)
        assert result["none"] is None and int(result["rows"][0]) == BATCH
        assert float(result["rows"][1][0]) == 2 * float(result["loss"])
        found.append(float(result["loss"]))
        wait_for_compiler()
    return [*found, float(counter)], [*model.get_weights(), table.numpy()]


@functools.cache
def two_devices():
    """Return one strategy for all forms: TensorFlow 2.15 and newer mix up the collectives of two."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def mirrored_fit():
    return fit(dense, scope=two_devices().scope())


def mirrored_loop():
    strategy = two_devices()
    with strategy.scope():
        model, optimizer = convolutions(), optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)  # Keras 3 cannot do that within a step of replicas
    loss_of = losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica(features, labels):
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(loss_of(labels, model(features, training=True)), global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905 - Python 3.9 runs it, too
        return loss

    @tf.function
    def train_step(features, labels):
        return strategy.reduce("SUM", strategy.run(replica, args=(features, labels)), axis=None)

    found = []
    for features, labels in strategy.experimental_distribute_dataset(batches()):
        found.append(float(train_step(features, labels)))
        wait_for_compiler()
    return found, model.get_weights()


FORMS = {
    "fit": lambda: fit(dense),
    "fit of convolutions": lambda: fit(convolutions),
    "fit of recurrent layers": lambda: fit(recurrent),
    "fit in groups": fit_in_groups,
    "train_on_batch": train_on_batch,
    "loop": loop,
    "fit under MirroredStrategy": mirrored_fit,
    "loop under MirroredStrategy": mirrored_loop,
}


def main():
    found = {}
    for name in options.forms.split(",") if options.forms else FORMS:
        first = 0 if VARIANT == "alone" else len(SESSION.steps)
        found_losses, weights = FORMS[name]()
        found[name] = {"losses": found_losses, "weights": [float(abs(each).sum()) for each in weights]}
        if VARIANT != "alone":
            steps = SESSION.as_dict()["functions"][first:]
            found[name]["steps"] = {
                "reasons": [each["fallback"] for each in steps] + [s["fallback"] for e in steps for s in e["shapes"]],
                "variants": [shape["steps_by_variant"] for each in steps for shape in each["shapes"]],
            }
    if VARIANT == "alone":
        assert "tidemill_tensorflow.compiler" not in sys.modules
    print("FOUND " + json.dumps({"tensorflow": tf.__version__, "forms": found}))


main()
