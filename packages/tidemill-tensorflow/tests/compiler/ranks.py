"""Train several replicas in one of several forms, with or without the compiler: ``ranks.py on|off FORM [...]``.

Each rank prints one JSON object with its losses, its weights and the functions in the compiler's report.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np

import tidemill_tensorflow

tidemill_tensorflow.activate()  # repairs fit of Keras 3 on several workers
if sys.argv[1] == "on":
    tidemill_tensorflow.compile_training(cache_dir=os.environ.get("CACHE"))

import tensorflow as tf  # noqa: E402

SWITCH, FORM, *REST = sys.argv[1:]
STEPS = 140
ROWS = np.random.default_rng(0).random((64, 9))


def wait_for_compiler() -> None:
    """Wait for the compiler's background thread."""
    if SWITCH == "on":
        from tidemill_tensorflow import compiler

        compiler._sessions[0].wait_for_background()


def horovod() -> tuple[list[float], Any]:
    """A function that returns gradients, averaged outside of it, under a launcher whose ranks only Horovod can read."""
    import horovod.tensorflow as hvd

    hvd.init()
    os.environ.pop("SMP_SIZE")
    kernel = tf.Variable(tf.ones([8, 1], tf.float64))

    @tf.function
    def compiled_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(rows[:, :8] @ kernel - rows[:, 8:]))
        return loss, tape.gradient(loss, kernel)

    @tf.function
    def apply_step(gradient: Any) -> None:
        kernel.assign_sub(0.01 * gradient)

    losses = []
    for step in range(STEPS):
        rows = tf.constant(ROWS[hvd.rank() * 16 + step % 3 :: 2][:16])
        loss, gradient = compiled_step(rows)
        apply_step(hvd.allreduce(gradient))
        losses.append(float(loss))
        wait_for_compiler()
        if step == 60 and SWITCH == "on" and hvd.rank() == 1:
            _decide_otherwise()
    return losses, kernel.numpy().tolist()


def _decide_otherwise() -> None:
    """Set this rank's decision to the variant that rank 0 did not choose."""
    from tidemill_tensorflow import compiler

    (shape,) = compiler._sessions[0].steps[0].shapes.values()
    assert shape.trial is not None and shape.trial.decision is not None
    shape.trial.decision = {"plain": "xla", "xla": "plain"}[shape.trial.decision]


def _recurrent(layers: Any) -> list[Any]:
    """Layers with a loop, an update outside of the gradients, and random numbers, for batches of any size."""
    hidden = [layers.Dense(16, activation="gelu"), layers.Reshape([4, 4]), layers.LSTM(6)]
    return [*hidden, layers.BatchNormalization(), layers.Dropout(0.2)]


def tape() -> tuple[list[float], Any]:
    """A step with Horovod's tape, optimizer, BatchNorm and dropout in one function, and a second such function."""
    import keras

    import horovod.tensorflow as hvd

    hvd.init()
    os.environ.pop("SMP_SIZE")
    keras.utils.set_random_seed(3)
    keras.backend.set_floatx("float64")
    layers = keras.layers
    model = keras.Sequential([keras.Input([8]), *_recurrent(layers), layers.Dense(1)])
    optimizer = keras.optimizers.AdamW(1e-2)
    optimizer.build(model.trainable_variables)
    scale = tf.Variable(1.0, dtype=tf.float64)

    @tf.function(input_signature=[tf.TensorSpec([None, 9], tf.float64)])
    def train_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(rows[:, :8], training=True) - rows[:, 8:]))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    @tf.function
    def scale_step(rows: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(scale * rows[:, :8] - rows[:, 8:]))
        gradient = hvd.allreduce(tape.gradient(loss, scale))
        scale.assign_sub(0.01 * gradient)
        return loss

    losses = []
    for step in range(STEPS):
        rows = tf.constant(ROWS[hvd.rank() * 16 + step % 3 :: 2][:16])
        losses += [float(train_step(rows)), float(scale_step(rows))]
        wait_for_compiler()
    return losses, [weight.numpy().tolist() for weight in [*optimizer.variables, scale]]


def workers() -> tuple[list[float], Any]:
    """A loop in which replicas call functions, on two processes from the script's cluster resolver, not TF_CONFIG."""
    return _of_replicas(_two_workers(), outer=False)


def fit() -> tuple[list[float], Any]:
    """Keras's `fit` on two processes."""
    import keras

    strategy = _two_workers()
    keras.utils.set_random_seed(3)
    keras.backend.set_floatx("float64")
    losses = []

    class Recorder(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(float(logs["loss"]))
            wait_for_compiler()

    layers = keras.layers
    with strategy.scope():
        model = keras.Sequential([keras.Input([8]), *_recurrent(layers), layers.Dense(1)])
        model.compile(keras.optimizers.Adam(1e-2), "mse")
    rows = tf.data.Dataset.from_tensor_slices((ROWS[:, :8], ROWS[:, 8:])).batch(16).repeat(5)
    model.fit(rows, epochs=STEPS // 20, verbose=0, callbacks=[Recorder()])
    return losses, [weight.numpy().tolist() for weight in model.trainable_variables]


def _two_workers() -> Any:
    index, *ports = (int(text) for text in REST)
    cluster = tf.train.ClusterSpec({"worker": [f"127.0.0.1:{port}" for port in ports]})
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        cluster, task_type="worker", task_id=index, rpc_layer="grpc"
    )
    return tf.distribute.MultiWorkerMirroredStrategy(resolver)


def mirrored() -> tuple[list[float], Any]:
    """A loop on two devices whose function contains the call of `strategy.run`."""
    return _of_replicas(_mirrored(), outer=True)


def mirrored_fit() -> tuple[list[float], Any]:
    """`fit` of Keras 3 on two devices, with a shorter last batch."""
    import keras

    return _fit_on_devices(keras, lambda: _recurrent(keras.layers), rows=58)


def mirrored_fit_of_tf_keras() -> tuple[list[float], Any]:
    """`fit` of tf_keras on two devices. Its dropout draws random numbers by a state."""
    import tf_keras

    return _fit_on_devices(tf_keras, lambda: [tf_keras.layers.BatchNormalization(), tf_keras.layers.Dropout(0.2)])


def synchronized() -> tuple[list[float], Any]:
    """`fit` on two devices with a layer that communicates before the gradients."""
    import keras

    return _fit_on_devices(keras, lambda: [keras.layers.BatchNormalization(synchronized=True)])


def common_value() -> tuple[list[float], Any]:
    """A loop on two devices, with a value of one variable for both replicas."""
    strategy = _mirrored()
    scale = tf.Variable(2.0)
    with strategy.scope():
        kernel = tf.Variable(tf.ones([8, 1]))
    rows = tf.constant(ROWS, tf.float32)

    def replica_step(factor: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = factor * tf.reduce_mean(tf.square(rows[:, :8] @ kernel - rows[:, 8:]))
        gradient = tape.gradient(loss, kernel)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        kernel.assign_sub(0.01 * total)
        return loss

    @tf.function
    def train_step() -> Any:
        return strategy.reduce("MEAN", strategy.run(replica_step, args=(scale * 1.5,)), axis=None)

    losses = []
    for _ in range(10):
        losses.append(float(train_step()))
        wait_for_compiler()
    return losses, kernel.numpy().tolist()


def _fit_on_devices(library: Any, hidden: Callable[[], list[Any]], rows: int = 64) -> tuple[list[float], Any]:
    strategy = _mirrored()
    if SWITCH == "on":
        from tidemill_tensorflow import compiler

        def decision(key: str) -> str | None:
            return None if key.startswith("function ") else REST[0]

        compiler._sessions[0].stored_decision = decision  # type: ignore[method-assign]
    library.utils.set_random_seed(3)
    library.backend.set_floatx("float64")
    losses = []

    class Recorder(library.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(float(logs["loss"]))
            wait_for_compiler()

    dense = library.layers.Dense
    with strategy.scope():
        model = library.Sequential([library.Input([8]), dense(16, activation="gelu"), *hidden(), dense(1)])
        model.compile(library.optimizers.Adam(1e-2), "mse", metrics=["mae"])
    settings = {"batch_size": 16, "shuffle": False, "verbose": 0, "callbacks": [Recorder()]}
    model.fit(ROWS[:rows, :8], ROWS[:rows, 8:], epochs=12, **settings)
    return losses, [variable.numpy().tolist() for variable in model.variables]


def _mirrored() -> Any:
    return tf.distribute.MirroredStrategy(_two_devices())


def replicas() -> tuple[list[float], Any]:
    """A loop on two devices in which each replica calls a function, and gradients are summed outside of it."""
    return _of_replicas(_mirrored(), outer=False)


def _two_devices() -> list[str]:
    (device,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * 2)
    return ["/cpu:0", "/cpu:1"]


def _of_replicas(strategy: Any, *, outer: bool) -> tuple[list[float], Any]:
    with strategy.scope():
        kernel = tf.Variable(tf.ones([8, 1], tf.float64))
    rows = tf.constant(ROWS)

    def gradient_of(step: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(rows[:, :8] @ kernel - rows[:, 8:] * tf.cast(step % 5, tf.float64)))
        return loss, tape.gradient(loss, kernel)

    compiled_step = gradient_of if outer else tf.function(gradient_of)

    def replica_step(step: Any) -> Any:
        loss, gradient = compiled_step(step)
        total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
        kernel.assign_sub(0.01 * total)
        return loss

    def train_step(step: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica_step, args=(step,)), axis=None)

    run = tf.function(train_step) if outer else train_step
    losses = []
    for step in range(120):  # a decision takes up to 49 rounds of two steps, after three steps
        losses.append(float(run(tf.constant(step))))
        wait_for_compiler()
    return losses, kernel.numpy().tolist()


FORMS = {
    "horovod": horovod,
    "tape": tape,
    "fit": fit,
    "workers": workers,
    "mirrored": mirrored,
    "mirrored_fit": mirrored_fit,
    "mirrored_fit_of_tf_keras": mirrored_fit_of_tf_keras,
    "synchronized": synchronized,
    "common_value": common_value,
    "replicas": replicas,
}

if __name__ == "__main__":
    losses, weights = FORMS[FORM]()
    functions = []
    if SWITCH == "on":
        from tidemill_tensorflow import compiler

        functions = compiler._sessions[0].as_dict()["functions"]
    # A single write, so that lines of ranks that share a standard output do not mix.
    os.write(1, (json.dumps({"losses": losses, "weights": weights, "functions": functions}) + "\n").encode())
