"""A script for sessions of TensorFlow 1 and Horovod, as they were written until 2019. Written for Python 3.7.

The weights after the training equal those of plain TensorFlow in one process, on the batches of all ranks together.
"""

import tempfile

import numpy as np
import tensorflow.compat.v1 as tf
from sklearn.datasets import load_digits

import horovod.tensorflow as hvd

tf.disable_v2_behavior()
STEPS, ROWS = 12, 32
hvd.init()
rank, size = hvd.rank(), hvd.size()
images, labels = load_digits(return_X_y=True)
images = (images[: STEPS * size * ROWS] / 16).astype("float32").reshape(STEPS, size, ROWS, 64)
labels = labels[: STEPS * size * ROWS].reshape(STEPS, size, ROWS)
NAMES = ("hidden", "out", "table")


def build(optimizer, seed):
    x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])

    def weights(name, shape):
        return tf.get_variable(name, shape, initializer=tf.random_normal_initializer(0.0, 0.1, seed=seed))

    hidden = tf.nn.tanh(tf.matmul(x, weights("hidden", [64, 16])))
    rows = tf.cast(tf.reduce_sum(x, 1), tf.int32) % 7  # a table, whose gradients are tf.IndexedSlices
    hidden += tf.nn.embedding_lookup(weights("table", [7, 16]), rows)
    logits = tf.matmul(hidden, weights("out", [16, 10]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    step = tf.train.get_or_create_global_step()
    return x, y, loss, optimizer.minimize(loss, global_step=step)


def weights_in(session):
    variables = {variable.op.name: variable for variable in tf.global_variables()}
    return session.run([variables[name] for name in NAMES])


class Last(tf.train.SessionRunHook):
    """Keeps the weights at the end."""

    def end(self, session):
        self.weights = weights_in(session)


def compare(what, make):
    with tf.Graph().as_default():
        # Each rank starts from other weights, until the hook sends those of rank 0.
        x, y, loss, train = build(hvd.DistributedOptimizer(make()), seed=1 + rank)
        mean, last = hvd.allreduce(loss), Last()
        hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=STEPS), last]
        directory = tempfile.mkdtemp() if rank == 0 else None
        with tf.train.MonitoredTrainingSession(checkpoint_dir=directory, hooks=hooks) as session:
            done, losses = 0, []
            while not session.should_stop():
                feed = {x: images[done, rank], y: labels[done, rank]}
                losses.append(session.run([train, mean], feed)[1])
                done += 1
        assert done == STEPS
    with tf.Graph().as_default(), tf.Session() as session:
        x, y, loss, train = build(make(), seed=1)
        session.run(tf.global_variables_initializer())
        wanted = []
        for each in range(STEPS):
            feed = {x: np.concatenate(images[each]), y: np.concatenate(labels[each])}
            wanted.append(session.run([train, loss], feed)[1])
        for one, other in zip(last.weights, weights_in(session)):
            np.testing.assert_allclose(one, other, atol=3e-6, err_msg=what)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    gathered = hvd.allgather_object([weight.tobytes() for weight in last.weights])
    assert all(each == gathered[0] for each in gathered), "ranks differ"
    if rank == 0:
        print("EQUAL " + what, flush=True)


compare("gradient descent", lambda: tf.train.GradientDescentOptimizer(0.5))
compare("momentum", lambda: tf.train.MomentumOptimizer(0.1, 0.9))
compare("adam", lambda: tf.train.AdamOptimizer(0.01))
