"""What `smp_mnist.py` must equal: the same model in one process of plain TensorFlow, which has no part of tidemill.

    python plain_mnist.py train|check DIRECTORY [legacy]

`train` writes the data, a checkpoint after half of the steps, and the losses. `check` reads what the other script has
written beside them, and prints the largest differences as JSON.
"""

import json
import sys

import numpy as np
import tensorflow as tf

what, work = sys.argv[1:3]
tf.keras.utils.set_random_seed(3)
random = np.random.default_rng(0)
labels = random.integers(0, 10, (10, 32))
images = random.normal(size=(10, 32, 8, 8, 1)) * 0.1 + np.eye(64)[labels * 6].reshape(10, 32, 8, 8, 1)
legacy = "legacy" in sys.argv


class Net(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.conv = tf.keras.layers.Conv2D(4, 3, activation="relu")
        self.flatten = tf.keras.layers.Flatten()
        self.dense = tf.keras.layers.Dense(32, activation="relu")
        self.head = tf.keras.layers.Dense(10)

    def call(self, x, training=None):
        return self.head(self.dense(self.flatten(self.conv(x))))


def made():
    family = tf.keras.optimizers.legacy if legacy else tf.keras.optimizers
    model, optimizer = Net(), family.Adam(learning_rate=0.01)
    return model, optimizer, tf.train.Checkpoint(model=model, optimizer=optimizer)


model, optimizer, checkpoint = made()
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
losses = []


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_object(y, model(x, training=True))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for number, (x, y) in enumerate(zip(images, labels)):
    if number == len(images) // 2 and what == "train":
        checkpoint.save(work + "/plain")
    losses.append(float(train_step(x, y)))

if what == "train":
    np.savez(work + "/plain.npz", images=images, labels=labels, legacy=legacy)
else:
    found = np.load(work + "/smp.npz")
    gaps = {
        "losses": np.abs(found["losses"] - losses).max(),
        "losses after a restored plain checkpoint": np.abs(found["resumed"] - losses[len(losses) // 2 :]).max(),
    }
    other, its_optimizer, its_checkpoint = made()
    other(images[0])
    its_optimizer.apply_gradients([(tf.zeros_like(one), one) for one in other.trainable_variables])
    its_checkpoint.restore(work + "/exported").assert_consumed()
    ours, its = (one.variables() if callable(one.variables) else one.variables for one in (optimizer, its_optimizer))
    pairs = zip([*model.variables, *ours], [*other.variables, *its])
    gaps["weights and slots"] = max(np.abs(a.numpy() - b.numpy()).max() for a, b in pairs)
    is_keras_2 = tf.keras.Model.__module__.endswith("engine.training")
    load = tf.keras.models.load_model if is_keras_2 else tf.saved_model.load  # Keras 3 loads no SavedModel
    served = load(work + "/model").signatures["serving_default"](tf.constant(images[0, :7]))["output_0"]
    gaps["answers of the SavedModel"] = np.abs(served - model(images[0, :7])).max()
    written, expected = (dict(tf.train.list_variables(work + each)).keys() for each in ("/exported", "/plain-1"))
    print(json.dumps({"gaps": {name: float(gap) for name, gap in gaps.items()}, "names": sorted(written ^ expected)}))
