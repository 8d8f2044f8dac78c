"""A typical training script for Keras 2, which test_legacy_keras.py runs on both versions of Keras.

The script has one process and no partitions. Its `step` is a plain loop over microbatches, whose results a partitioned
step must equal. It splits and combines with the library's classes.
"""

import inspect
import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow import legacy_keras
from smdistributed.modelparallel.tensorflow.stepping.split import split_arguments

legacy_keras.install()
tf.keras.utils.set_random_seed(7)
work = pathlib.Path(sys.argv[1])
legacy = os.environ.get("TF_USE_LEGACY_KERAS") == "1"


def step(body):
    def call(*args, **kwargs):
        split = split_arguments(inspect.signature(body), args, kwargs, num_microbatches=2)
        results = []
        for mb in range(2):
            mb_args, mb_kwargs = split.rebuild(split.values(mb))
            results.append(body(*mb_args, **mb_kwargs))
        combine = lambda *values: smp.StepOutput(values)  # noqa: E731
        return tf.nest.map_structure(combine, *results)

    return call


random = np.random.default_rng(0)
labels = random.integers(0, 10, 256)
images = random.normal(size=(256, 8, 8, 1)) * 0.1 + np.eye(64)[labels * 6].reshape(256, 8, 8, 1)
train_ds = tf.data.Dataset.from_tensor_slices((images, labels)).batch(32, drop_remainder=True)


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.conv = tf.keras.layers.Conv2D(4, 3, activation="relu")
        self.flatten = tf.keras.layers.Flatten()
        self.dense = tf.keras.layers.Dense(10)

    def call(self, x, training=None):
        return self.dense(self.flatten(self.conv(x)))


model = Net()
schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.01, decay_steps=100, decay_rate=0.9, name=None)
optimizer = tf.keras.optimizers.Adam(learning_rate=schedule)
loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_loss = tf.keras.metrics.Mean(name="train_loss")
test_accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="test_accuracy")


@step
def get_grads(x, y):
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
    by_tape = tape.gradient(loss, model.trainable_variables)
    pairs = optimizer.compute_gradients(loss, model.trainable_variables)
    return optimizer.get_gradients(loss, model.trainable_variables), loss, by_tape, [grad for grad, _ in pairs]


@step
def evaluate(x, y):
    predictions = model(x)
    return loss_fn(y, predictions), predictions


@tf.function
def train_step(x, y):
    gradients, loss, by_tape, paired = get_grads(x, y)
    means = [[grad.accumulate() for grad in grads] for grads in (gradients, by_tape, paired)]
    gaps = [abs(a - b) for other in means[1:] for a, b in zip(means[0], other, strict=True)]
    gap = tf.reduce_max([tf.reduce_max(difference) for difference in gaps])
    optimizer.apply_gradients(zip(means[0], model.trainable_variables, strict=True))
    return loss.reduce_mean(), gap


@tf.function
def test_step(x, y):
    loss, predictions = evaluate(x, y)
    test_accuracy.update_state(y, predictions.merge())
    return loss.reduce_mean()


report = {"keras": tf.keras.Model.__module__.split(".")[0], "losses": [], "gap": 0.0}
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
for _ in range(4):
    train_loss.reset_states()
    test_accuracy.reset_states()
    for x, y in train_ds:
        loss, gap = train_step(x, y)
        train_loss(loss)
        report["gap"] = max(report["gap"], float(gap))
    for x, y in train_ds:
        test_step(x, y)
    report["losses"].append(float(train_loss.result()))
report["accuracy"] = float(test_accuracy.result())
report["optimizer_variables"] = len(optimizer.variables())

path = checkpoint.save(str(work / "ckpt"))
before = [np.array(variable) for variable in model.trainable_variables]
for variable in model.trainable_variables:
    variable.assign(tf.zeros_like(variable))
checkpoint.restore(path)
report["restored"] = all(np.array_equal(a, np.array(b)) for a, b in zip(before, model.trainable_variables, strict=True))

if not legacy:
    model.export(str(work / "model"), input_signature=[tf.TensorSpec((None, 8, 8, 1), tf.float64)], verbose=False)
    loaded = tf.keras.models.load_model(str(work / "model"))
    served = loaded.signatures["serving_default"](tf.constant(images[:32]))["output_0"]
    report["served"] = float(np.abs(served - model(images[:32])).max())
    report["called"] = float(np.abs(loaded(images[:7].astype("float32")) - model(images[:7])).max())
    report["predicted"] = float(np.abs(loaded.predict(images[:50]) - model.predict(images[:50], verbose=0)).max())
print(json.dumps(report))
