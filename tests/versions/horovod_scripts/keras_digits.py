"""A script for Keras 2 and Horovod, as they were written from 2019 to 2023. Written for Python 3.7.

The weights after the training equal those of plain Keras in one process, on the batches of all ranks together. With
the argument `keras` the script imports the package keras instead of `tf.keras`.
"""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

if "keras" in sys.argv[1:]:
    import keras

    import horovod.keras as hvd
else:
    import horovod.tensorflow.keras as hvd

    keras = tf.keras

STEPS, ROWS, EPOCHS = 6, 32, 2
hvd.init()
rank, size = hvd.rank(), hvd.size()
images, labels = load_digits(return_X_y=True)
images = (images[: STEPS * size * ROWS] / 16).astype("float32").reshape(STEPS, size, ROWS, 64)
labels = labels[: STEPS * size * ROWS].reshape(STEPS, size, ROWS)
random = np.random.RandomState(5)
START = [random.normal(0, 0.1, shape).astype("float32") for shape in ((64, 32), (32,), (32, 10), (10,))]


def train(optimizer, batches, batch_size, callbacks=(), start=1.0):
    model = keras.models.Sequential()
    model.add(keras.layers.Dense(32, activation="tanh", input_shape=(64,)))
    model.add(keras.layers.Dense(10, activation="softmax"))
    model.set_weights([start * weight for weight in START])
    model.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, metrics=["accuracy"])
    x, y = (np.concatenate(each.reshape(-1, batch_size, *each.shape[3:])) for each in batches)
    fitted = model.fit(x, y, batch_size=batch_size, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=list(callbacks))
    return model.get_weights(), fitted.history


def mine():
    return images[:, rank : rank + 1], labels[:, rank : rank + 1]


def equal_on_all_ranks(weights):
    gathered = hvd.allgather_object([weight.tobytes() for weight in weights])
    assert all(each == gathered[0] for each in gathered), "ranks differ"


def compare(what, optimizer, **options):
    callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
    ours, found = train(hvd.DistributedOptimizer(optimizer(), **options), mine(), ROWS, callbacks)
    if "keras" in sys.argv[1:] and tf.__version__.startswith("1."):
        # Plain Keras 2.3 reads the count of Adam's steps while it counts: with one thread always afterwards.
        config = tf.ConfigProto(inter_op_parallelism_threads=1, use_per_session_threads=True)
        keras.backend.clear_session()
        keras.backend.set_session(tf.Session(config=config))
    theirs, wanted = train(optimizer(), (images, labels), size * ROWS)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, atol=3e-6, err_msg=what)
    np.testing.assert_allclose(found["loss"], wanted["loss"], rtol=1e-4)
    equal_on_all_ranks(ours)
    if rank == 0:
        print("EQUAL " + what, flush=True)


compare("sgd", lambda: keras.optimizers.SGD(0.1, momentum=0.9))
compare("adam", lambda: keras.optimizers.Adam(0.01))
legacy = getattr(keras.optimizers, "legacy", None)
if hasattr(legacy, "SGD"):
    compare("legacy", lambda: legacy.SGD(0.1, momentum=0.9))
if tf.executing_eagerly() and hasattr(keras.optimizers.SGD, "apply_gradients"):
    options = {"backward_passes_per_step": 1, "op": hvd.Sum}
    compare("sum", lambda: keras.optimizers.SGD(0.1), **{**options, "op": hvd.Average})

# Ranks that start from different weights have those of rank 0 after the first batch; the learning rate warms up; the
# best model is a file of rank 0.
path = os.path.join(tempfile.mkdtemp(), "best.h5")
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(0.1 * size, warmup_epochs=1, steps_per_epoch=STEPS),
    hvd.callbacks.BestModelCheckpoint(path, monitor="loss"),
]
optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * size))
weights, history = train(optimizer, mine(), ROWS, callbacks, start=1.0 + rank)
equal_on_all_ranks(weights)
np.testing.assert_allclose(history["lr"], [0.1 * size, 0.1 * size], rtol=1e-5)
assert os.path.exists(path) == (rank == 0)
if rank == 0:
    restored = keras.models.load_model(path)
    assert np.isfinite(restored.predict(images[0, 0])).all()
    print("EQUAL broadcast", flush=True)
