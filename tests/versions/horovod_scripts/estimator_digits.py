"""A script for tf.estimator and Horovod. Written for Python 3.7.

The weights after the training equal those of the estimator in one process, on the batches of all ranks together.
"""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd

STEPS, ROWS = 8, 32
hvd.init()
rank, size = hvd.rank(), hvd.size()
images, labels = load_digits(return_X_y=True)
images = (images[: STEPS * size * ROWS] / 16).astype("float32").reshape(STEPS, size, ROWS, 64)
labels = labels[: STEPS * size * ROWS].reshape(STEPS, size, ROWS)


def model_fn(features, labels, mode, params):
    def weights(name, shape):
        return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(0.0, 0.1, seed=params["seed"]))

    logits = tf.matmul(tf.nn.tanh(tf.matmul(features["x"], weights("hidden", [64, 16]))), weights("out", [16, 10]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)
    if params["distributed"]:
        optimizer = hvd.DistributedOptimizer(optimizer)
    train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    accuracy = tf.metrics.accuracy(labels, tf.argmax(logits, 1))
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train, eval_metric_ops={"accuracy": accuracy})


def input_fn(x, y, rows):
    data = tf.data.Dataset.from_tensor_slices(({"x": x.reshape(-1, 64)}, y.reshape(-1).astype("int64")))
    return data.batch(rows)


def trained(distributed, seed, hooks, x, y, rows):
    estimator = tf.estimator.Estimator(
        model_fn, model_dir=tempfile.mkdtemp(), params={"distributed": distributed, "seed": seed}
    )
    estimator.train(lambda: input_fn(x, y, rows), steps=STEPS, hooks=hooks)
    return estimator


own = (images[:, rank], labels[:, rank])
estimator = trained(True, 1 + rank, [hvd.BroadcastGlobalVariablesHook(0)], *own, rows=ROWS)
plain = trained(False, 1, [], images, labels, rows=size * ROWS)
for name in ("hidden", "out"):
    ours, theirs = estimator.get_variable_value(name), plain.get_variable_value(name)
    np.testing.assert_allclose(ours, theirs, atol=3e-6)
if rank == 0:
    print("EQUAL estimator", estimator.evaluate(lambda: input_fn(images, labels, 64))["global_step"], flush=True)
