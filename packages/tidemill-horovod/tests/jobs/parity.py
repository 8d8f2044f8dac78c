"""Train on two ranks, and without Horovod in each process on the whole batch: weights and losses must be equal.

`TF_USE_LEGACY_KERAS=1` selects tf_keras instead of Keras 3.
"""

import os
import sys
import tempfile

import numpy as np
import tensorflow as tf

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras

hvd.init()
rank, size = hvd.rank(), hvd.size()
keras = tf.keras
IS_LEGACY = not hasattr(keras, "Variable")  # Keras 2, also as tf_keras
assert IS_LEGACY or os.environ.get("TF_USE_LEGACY_KERAS") != "1"
ROWS, STEPS = 8, 4  # rows of each rank in each step, and number of steps
RANDOM = np.random.RandomState(7)
TOKENS = RANDOM.randint(0, 11, (STEPS, size, ROWS, 3))
NUMBERS = RANDOM.randn(STEPS, size, ROWS, 5).astype("float32")
TARGETS = RANDOM.randn(STEPS, size, ROWS, 2).astype("float32")


def dense_model(normalization=None):
    keras.utils.set_random_seed(3)
    inputs = keras.Input([5])
    hidden = keras.layers.Dense(16, activation="tanh")(inputs)
    if normalization is not None:
        hidden = normalization()(hidden)
    return keras.Model(inputs, keras.layers.Dense(2)(hidden)), NUMBERS


def sparse_model():
    keras.utils.set_random_seed(3)
    inputs = keras.Input([3], dtype="int64")
    hidden = keras.layers.Flatten()(keras.layers.Embedding(11, 4)(inputs))
    return keras.Model(inputs, keras.layers.Dense(2)(hidden)), TOKENS


def per_rank(data):
    """Return the batches of this rank, one after the other."""
    return np.concatenate(data[:, rank])


def whole(data):
    """Return the batches of all ranks together."""
    return np.concatenate(data.reshape(STEPS, size * ROWS, *data.shape[3:]))


def compare(what, model, plain, tolerance=2e-6):
    ours, theirs = model.get_weights(), plain.get_weights()
    for mine, reference in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, reference, atol=tolerance, err_msg=what)
    all_ = hvd.allgather_object([weight.tobytes() for weight in ours])
    assert all(one == all_[0] for one in all_), f"{what}: ranks differ"
    if rank == 0:
        print("equal", what, flush=True)


def fit(make, optimizer, what, **options):
    """Run `Model.fit` with a distributed optimizer; `passes` batches make one batch of the plain model."""
    passes = options.get("backward_passes_per_step", 1)
    model, data = make()
    model.compile(hvd_keras.DistributedOptimizer(optimizer(), **options), "mse")
    for weight in model.variables if rank == 1 else []:  # simulates ranks that started from different seeds
        if "seed" not in weight.name:
            weight.assign(weight)
    history = model.fit(
        per_rank(data),
        per_rank(TARGETS),
        batch_size=ROWS,
        shuffle=False,
        verbose=0,
        epochs=2,
        callbacks=[
            hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd_keras.callbacks.MetricAverageCallback(),
        ],
    )
    plain, data = make()
    plain.compile(optimizer(), "mse")
    wanted = plain.fit(whole(data), whole(TARGETS), batch_size=size * ROWS * passes, shuffle=False, verbose=0, epochs=2)
    compare(what, model, plain)
    assert int(model.optimizer.iterations) == 2 * STEPS  # batches, not updates, as in Horovod
    if passes == 1:
        np.testing.assert_allclose(history.history["loss"], wanted.history["loss"], rtol=1e-5)


sgd = keras.optimizers.SGD
fit(dense_model, lambda: keras.optimizers.Adam(0.01), "dense")
fit(sparse_model, lambda: sgd(0.1), "sparse")
fit(sparse_model, lambda: sgd(0.1), "sparse as dense", sparse_as_dense=True)
fit(dense_model, lambda: sgd(0.1, momentum=0.9, clipnorm=0.05), "clipnorm")
fit(dense_model, lambda: sgd(0.1, global_clipnorm=0.05), "global clipnorm")
fit(dense_model, lambda: sgd(0.1, clipvalue=0.01), "clipvalue")
fit(dense_model, lambda: sgd(0.1), "two passes", backward_passes_per_step=2, average_aggregated_gradients=True)
fit(
    sparse_model,
    lambda: sgd(0.1),
    "two passes, sparse",
    backward_passes_per_step=2,
    average_aggregated_gradients=True,
)
if IS_LEGACY:
    fit(dense_model, lambda: keras.optimizers.legacy.SGD(0.1, momentum=0.9), "legacy optimizer")

# The moments of all ranks' batches equal those of the whole batch.
model, data = dense_model(hvd.SyncBatchNormalization)
model.compile(hvd_keras.DistributedOptimizer(sgd(0.1)), "mse")
model.fit(per_rank(data), per_rank(TARGETS), batch_size=ROWS, shuffle=False, verbose=0)
plain, data = dense_model(keras.layers.BatchNormalization)
plain.compile(sgd(0.1), "mse")
plain.fit(whole(data), whole(TARGETS), batch_size=size * ROWS, shuffle=False, verbose=0)
compare("batch normalization", model, plain, tolerance=5e-6)

# A loop with a tape in a graph: weights differ at first, and are equal after the first batch.
model, data = dense_model()
plain, _ = dense_model()
for weight in model.trainable_variables:
    weight.assign(weight * (1.0 + rank))
optimizer, reference = sgd(0.1), sgd(0.1)


@tf.function
def train(x, y, first):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))  # noqa: B905 - AutoGraph before 2.15 has no strict
    return loss


hvd.broadcast_variables(model.variables, root_rank=0)
for step in range(STEPS):
    train(tf.constant(data[step, rank]), tf.constant(TARGETS[step, rank]), step == 0)
    with tf.GradientTape() as tape:
        x, y = np.concatenate(data[step]), np.concatenate(TARGETS[step])
        loss = tf.reduce_mean((plain(x, training=True) - y) ** 2)
    grads = tape.gradient(loss, plain.trainable_variables)
    reference.apply_gradients(zip(grads, plain.trainable_variables, strict=True))
compare("tape", model, plain)

# Warm-up of the learning rate, a model file of rank 0, and the model loaded again with its optimizer's state.
path = hvd.broadcast_object(tempfile.mkdtemp() if rank == 0 else None, 0) + "/best.keras"
model, data = dense_model()
model.compile(hvd_keras.DistributedOptimizer(sgd(0.1 * size, momentum=0.9)), "mse")
history = model.fit(
    per_rank(data),
    per_rank(TARGETS),
    batch_size=ROWS,
    shuffle=False,
    verbose=0,
    epochs=3,
    validation_data=(per_rank(data), per_rank(TARGETS)),
    callbacks=[
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
        hvd_keras.callbacks.LearningRateWarmupCallback(0.1 * size, warmup_epochs=2, verbose=1),
        hvd_keras.callbacks.LearningRateScheduleCallback(0.1 * size, 0.5, start_epoch=2),
        hvd_keras.callbacks.BestModelCheckpoint(path),
    ],
)
np.testing.assert_allclose(history.history["lr"], [0.1 * (1 + (size - 1) * 0.5), 0.1 * size, 0.05 * size], rtol=1e-6)
assert len(set(map(str, hvd.allgather_object(history.history["val_loss"])))) == 1
hvd.barrier()
loaded = hvd_keras.load_model(path)
hvd.barrier()
assert loaded.optimizer._horovod is not None
loaded.fit(per_rank(data), per_rank(TARGETS), batch_size=ROWS, verbose=0)
all_ = hvd.allgather_object([weight.tobytes() for weight in loaded.get_weights()])
assert all_[0] == all_[1]
if rank == 0:
    plain = keras.models.load_model(path)  # with Keras only
    assert not hasattr(plain.optimizer, "_horovod")
    print("equal files", flush=True)
sys.exit(0)
