"""A script for TensorFlow 2 with a loop of its own and Horovod. Written for Python 3.7.

The weights after the training equal those of plain TensorFlow in one process, on the batches of all ranks together.
"""

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd

STEPS, ROWS = 10, 32
hvd.init()
rank, size = hvd.rank(), hvd.size()
images, labels = load_digits(return_X_y=True)
images = (images[: STEPS * size * ROWS] / 16).astype("float32").reshape(STEPS, size, ROWS, 64)
labels = labels[: STEPS * size * ROWS].reshape(STEPS, size, ROWS)
loss_of = tf.losses.SparseCategoricalCrossentropy(from_logits=True)


def network(scale):
    model = tf.keras.Sequential([tf.keras.layers.Dense(32, activation="tanh"), tf.keras.layers.Dense(10)])
    model.build([None, 64])
    random = np.random.RandomState(5)
    model.set_weights([random.normal(0, 0.1, weight.shape).astype("float32") * scale for weight in model.get_weights()])
    return model


def trainer(model, optimizer, distributed):
    @tf.function
    def train(x, y, first_batch):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        if distributed:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if distributed and first_batch:  # after it, since the optimizer has variables only then
            hvd.broadcast_variables(model.variables, root_rank=0)
        return loss

    return train


model, plain = network(1.0), network(1.0)
ours = trainer(model, tf.optimizers.Adam(0.01), True)
theirs = trainer(plain, tf.optimizers.Adam(0.01), False)
for step in range(STEPS):
    ours(images[step, rank], labels[step, rank], step == 0)
    theirs(np.concatenate(images[step]), np.concatenate(labels[step]), step == 0)
for one, other in zip(model.get_weights(), plain.get_weights()):
    np.testing.assert_allclose(one, other, atol=3e-6)
gathered = hvd.allgather_object([weight.tobytes() for weight in model.get_weights()])
assert all(each == gathered[0] for each in gathered), "ranks differ"

# Gradients of the collectives themselves, in a graph and eagerly.
value = tf.Variable([[1.0 + rank, 2.0]])


def derivative(function):
    with tf.GradientTape() as tape:
        result = function()
    return tape.gradient(result, value)


for wrap in (tf.function, lambda function: function):
    np.testing.assert_allclose(wrap(lambda: derivative(lambda: hvd.allreduce(value, op=hvd.Sum)))(), [[size, size]])
    gathers = wrap(lambda: derivative(lambda: hvd.allgather(value) * (rank + 1.0)))()
    np.testing.assert_allclose(gathers, [[(size + 1) / 2] * 2])
    received, rows = wrap(lambda: hvd.alltoall(tf.range(size) + 10 * rank, splits=[1] * size))()
    np.testing.assert_array_equal(received, [10 * each + rank for each in range(size)])
    np.testing.assert_array_equal(rows, [1] * size)
    minimum = wrap(lambda: hvd.allreduce(tf.constant([rank]), op=hvd.Min))()
    np.testing.assert_array_equal(minimum, [0])
if rank == 0:
    print("EQUAL tape", flush=True)
