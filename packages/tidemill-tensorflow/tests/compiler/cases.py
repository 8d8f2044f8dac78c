"""Training scripts of every form in one process, with the compiler (``on DIRECTORY``) or without (``off DIRECTORY``).

Further arguments are cases to leave out. Prints one JSON object: the losses of each case, in the order of the steps.
"""

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

# Run `cases.py on DIRECTORY` first: `cases.py off DIRECTORY` loads the checkpoints that it saves there.
if sys.argv[1] == "on":
    import tidemill_tensorflow

    tidemill_tensorflow.compile_training(report_dir=sys.argv[2])

import keras
import numpy as np
import tensorflow as tf
import tf_keras

STEPS = 200
BATCH = 16
BATCHES = 20


def wait_for_compiler() -> None:
    """Wait for the compiler's background thread."""
    if sys.argv[1] == "on":
        from tidemill_tensorflow import compiler

        compiler._sessions[0].wait_for_background()


def choosing(decision: Callable[[str], str], *, of_function: str | None = None) -> Any:
    """Replace the stored decisions of the compiler's session. Return the session; None without the compiler.

    Args:
        decision: Returns the decision for a key of shapes.
        of_function: What an earlier job has stored for each whole function.
    """
    if sys.argv[1] != "on":
        return None
    from tidemill_tensorflow import compiler

    session: Any = compiler._sessions[0]
    session.stored_decision = lambda key: of_function if key.startswith("function ") else decision(key)
    return session


def model_of(library: Any, dtype: str) -> Any:
    library.utils.set_random_seed(3)
    library.backend.set_floatx(dtype)
    layers = library.layers
    inputs = library.Input((24,), dtype=dtype)
    hidden = inputs
    for _ in range(2):
        hidden = layers.Dense(48, activation="gelu")(hidden)
        hidden = layers.Dropout(0.2)(layers.BatchNormalization()(hidden))
    return library.Model(inputs, layers.Dense(5)(layers.GaussianNoise(0.01)(hidden)))


def convolutions_of(library: Any, dtype: str) -> Any:
    library.utils.set_random_seed(3)
    library.backend.set_floatx(dtype)
    layers = library.layers
    inputs = library.Input((24,), dtype=dtype)
    hidden = layers.Reshape((4, 6, 1))(inputs)
    for filters in (8, 16):
        hidden = layers.BatchNormalization()(layers.Conv2D(filters, 3, padding="same", activation="relu")(hidden))
    hidden = layers.Dropout(0.2)(layers.Flatten()(layers.MaxPool2D()(hidden)))
    return library.Model(inputs, layers.Dense(5)(hidden))


def recurrent_of(library: Any, dtype: str) -> Any:
    library.utils.set_random_seed(3)
    library.backend.set_floatx(dtype)
    layers = library.layers
    inputs = library.Input((24,), batch_size=BATCH, dtype=dtype)
    hidden = layers.LSTM(8, return_sequences=True)(layers.Reshape((6, 4))(inputs))
    return library.Model(inputs, layers.Dense(5)(layers.GRU(8)(hidden)))


def recurrent_of_any_size(library: Any, dtype: str) -> Any:
    library.utils.set_random_seed(3)
    library.backend.set_floatx(dtype)
    layers = library.layers
    inputs = library.Input((24,), dtype=dtype)
    hidden = layers.LSTM(8, return_sequences=True, dropout=0.1)(layers.Reshape((6, 4))(inputs))
    return library.Model(inputs, layers.Dense(5)(layers.GRU(8)(hidden)))


class SizeByValue(keras.layers.Layer):  # type: ignore[misc]
    """Repeats rows as often as their values say, which is once."""

    def call(self, rows: Any) -> Any:
        """Return the same rows."""
        times = tf.shape(tf.where(rows == rows))[0] // tf.size(rows)
        return tf.tile(rows, [times, 1])


def sizes_by_values_of(library: Any, dtype: str) -> Any:
    library.utils.set_random_seed(3)
    library.backend.set_floatx(dtype)
    layers = [library.layers.Dense(16, activation="relu"), SizeByValue(), library.layers.Dense(5)]
    return library.Sequential([library.Input((24,), dtype=dtype), *layers])


def dense_of(library: Any, dtype: str) -> Any:
    library.utils.set_random_seed(3)
    return library.Sequential([library.Input((24,), dtype=dtype), library.layers.Dense(5, dtype=dtype)])


def data_of(dtype: str) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    return generator.random((BATCH * BATCHES, 24)).astype(dtype), generator.integers(0, 5, BATCH * BATCHES)


def batch(data: tuple[Any, Any], step: int) -> tuple[Any, Any]:
    begin = step % BATCHES * BATCH
    return tuple(array[begin : begin + BATCH] for array in data)  # type: ignore[return-value]


def recorder(library: Any, losses: list[float]) -> Any:
    class Recorder(library.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            losses.append(float(logs["loss"]))
            if len(losses) < 12:
                wait_for_compiler()

    return Recorder()


def loss_of(library: Any) -> Any:
    return library.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(
    library: Any, dtype: str, scope: Any = None, build: Any = model_of, at_once: int = 1, left_out: int = 0
) -> list[float]:
    losses: list[float] = []
    with scope or tf.name_scope("plain"):
        model = build(library, dtype)
        model.compile(library.optimizers.Adam(1e-3), loss_of(library), steps_per_execution=at_once)
    features, labels = data_of(dtype)
    rows = len(labels) - left_out
    model.fit(
        features[:rows],
        labels[:rows],
        batch_size=BATCH,
        epochs=STEPS // BATCHES,
        verbose=0,
        shuffle=False,
        callbacks=[recorder(library, losses)],
    )
    return losses


def fit_of_unknown_length(library: Any) -> list[float]:
    """Epochs whose end shows only when there is no next batch."""
    losses: list[float] = []
    model = model_of(library, "float64")
    model.compile(library.optimizers.Nadam(1e-3), loss_of(library))
    batches = tf.data.Dataset.from_tensor_slices(data_of("float64")).batch(BATCH, drop_remainder=True)
    batches = batches.filter(lambda features, labels: True)
    model.fit(batches, epochs=STEPS // BATCHES, verbose=0, callbacks=[recorder(library, losses)])
    return [*losses[: STEPS - 1], losses[-1] + float(model.optimizer.iterations.numpy())]


def fit_with_failing_variants() -> list[float]:
    """Steps that run in parts before the compiler fails for a reason that it does not expect."""
    if sys.argv[1] == "off":
        return fit(tf_keras, "float64")
    from tidemill_tensorflow.compiler.steps import LocalStep

    def fail(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("no variant today")

    original, LocalStep._add_variants = LocalStep._add_variants, fail  # type: ignore[method-assign]
    try:
        return fit(tf_keras, "float64")
    finally:
        LocalStep._add_variants = original  # type: ignore[method-assign]


def later_fit(library: Any, variant: str) -> list[float]:
    """Steps of which an earlier job has stored all decisions."""
    session = choosing(lambda key: variant, of_function=variant)
    losses = fit(library, "float64")
    if session is not None:
        del session.stored_decision
    return losses


def fit_of_batches_at_once(variant: str, library: Any = keras, *, of_function: str | None = None) -> list[float]:
    """Epochs with a partial last batch, validation and an epoch callback, after the compiler has decided."""
    session = choosing(lambda key: "at_once" if key.endswith("at once") else variant, of_function=of_function)

    class Epochs(library.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            wait_for_compiler()

    model = model_of(library, "float64")
    model.compile(library.optimizers.Adam(1e-3), loss_of(library), metrics=["accuracy"])
    features, labels = (array[: BATCH * BATCHES - 5] for array in data_of("float64"))
    data = {"batch_size": BATCH, "verbose": 0, "shuffle": False, "callbacks": [Epochs()]}
    found = [model.fit(features, labels, epochs=7, validation_data=(features[:32], labels[:32]), **data).history]
    found.append(model.fit(features, labels, epochs=4, steps_per_epoch=11, **data).history)
    batches = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH).take(12)
    found.append(model.fit(batches, steps_per_epoch=20, verbose=0, callbacks=[Epochs()]).history)
    iterations = float(model.optimizer.iterations.numpy())
    if session is not None:
        del session.stored_decision
    numbers = [value for history in found for name in sorted(history) for value in history[name]]
    return [*numbers, iterations, *(float(abs(w).sum()) for w in model.get_weights())]


class Checked(tf_keras.layers.Layer):  # type: ignore[misc]
    """Layer that accepts numbers below 100."""

    def call(self, inputs: Any) -> Any:
        tf.debugging.assert_less(inputs, tf.constant(100.0, inputs.dtype), message="too large")
        return inputs


def checks_of_batches_at_once() -> list[float]:
    """An assertion that holds in six epochs, and fails in the middle of eight batches in the seventh."""
    session = choosing(lambda key: "at_once" if key.endswith("at once") else "xla")

    class Epochs(tf_keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            wait_for_compiler()

    tf_keras.utils.set_random_seed(3)
    model = tf_keras.Sequential([Checked(dtype="float64"), tf_keras.layers.Dense(5, dtype="float64")])
    model.compile(tf_keras.optimizers.Adam(1e-3), loss_of(tf_keras))
    features, labels = data_of("float64")
    settings = {"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": [Epochs()]}
    losses = list(model.fit(features, labels, epochs=6, **settings).history["loss"])
    features[4 * BATCH] = 1000.0
    try:
        model.fit(features, labels, **settings)
    except tf.errors.InvalidArgumentError as error:
        losses.append(float("too large" in str(error)))
    if session is not None:
        del session.stored_decision
    return losses


def train_on_batch(library: Any, dtype: str) -> list[float]:
    model = model_of(library, dtype)
    model.compile(library.optimizers.Adam(1e-3), loss_of(library))
    data = data_of(dtype)
    losses = []
    for step in range(STEPS):
        losses.append(float(model.train_on_batch(*batch(data, step))))
        if step < 12:
            wait_for_compiler()
    return losses


def loop(library: Any, dtype: str, *, applies: bool = True, in_python: bool = False) -> list[float]:
    """A step that applies gradients, one that only returns them, or one whose inputs pass a tf.py_function."""
    model = model_of(library, dtype)
    optimizer = library.optimizers.SGD(0.05)
    loss_function = loss_of(library)
    variables = model.trainable_variables
    optimizer.build(variables)

    def gradients_of(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = model(features, training=True)
            if in_python:
                outputs = tf.ensure_shape(tf.py_function(lambda value: value * 1.0, [outputs], dtype), outputs.shape)
            loss = loss_function(labels, outputs)
        return loss, tape.gradient(loss, variables)

    compiled_step = tf.function(gradients_of)

    @tf.function
    def train_step(features: Any, labels: Any) -> Any:
        # The message is a string, which XLA does not support. Models of transformers check their inputs like this.
        tf.debugging.assert_less(labels, tf.constant(5, labels.dtype), message="a label is no class")
        loss, gradients = gradients_of(features, labels)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        tf.debugging.assert_all_finite(loss, "the loss is no number")
        return loss

    data = data_of(dtype)
    losses = []
    for step in range(STEPS):
        features, labels = (tf.constant(array) for array in batch(data, step))
        if applies:
            loss = train_step(features, labels)
        else:
            loss, gradients = compiled_step(features, labels)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))
        losses.append(float(loss))
        if step < 12:
            wait_for_compiler()
    return losses


def loop_of_replicas() -> list[float]:
    """A step that a strategy runs, with a traced function for its gradients, metrics and weight decay."""
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model = model_of(keras, "float64")
        optimizer = keras.optimizers.Adam(1e-3)
        mean_loss = keras.metrics.Mean(dtype="float64")
    loss_function = loss_of(keras)
    variables = model.trainable_variables

    @tf.function
    def compiled_step(features: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(features, training=True))
        return loss, tape.gradient(loss, variables)

    def train_step(features: Any, labels: Any) -> None:
        loss, gradients = compiled_step(features, labels)
        decayed = [gradient + 1e-4 * variable for gradient, variable in zip(gradients, variables, strict=True)]
        optimizer.apply_gradients(zip(decayed, variables, strict=True))
        mean_loss.update_state(loss)

    @tf.function
    def train_step_dist(features: Any, labels: Any) -> None:
        strategy.run(train_step, args=(features, labels))

    data = data_of("float64")
    losses = []
    for step in range(STEPS):
        mean_loss.reset_state()
        train_step_dist(*(tf.constant(array) for array in batch(data, step)))
        losses.append(float(mean_loss.result()))
        if step < 12:
            wait_for_compiler()
    return losses


def same_state() -> list[float]:
    """Largest differences between float32 steps of two models, one of them always plain, from equal states."""
    models = []
    for jit in (False, "auto"):
        model = convolutions_of(keras, "float32")
        # Not Adam, which divides by the size of a gradient and so amplifies rounding errors.
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, loss_of(keras), **({} if jit else {"jit_compile": False}))
        models.append(model)
    plain, free = models
    data = data_of("float32")
    differences = []
    for step in range(60):
        losses = [float(model.train_on_batch(*batch(data, step))) for model in models]
        states = [[variable.numpy() for variable in _state(model)] for model in models]
        scales = [float(abs(one).max()) or 1.0 for one in states[0]]
        apart = [float(abs(one - other).max()) / scale for one, other, scale in zip(*states, scales, strict=True)]
        differences.append(max([abs(losses[0] - losses[1]) / losses[0], *apart]))
        for one, other in zip(_state(plain), _state(free), strict=True):
            other.assign(one)
        free.reset_metrics()
        plain.reset_metrics()
        if step < 12:
            wait_for_compiler()
    return differences


def checkpoint() -> list[float]:
    """Save after steps with the compiler, load without it."""
    directory = sys.argv[2]
    model = model_of(keras, "float64")
    # The step of `train_on_batch` has Adam; an equal step would adopt its decision, without a trial.
    model.compile(keras.optimizers.AdamW(1e-3), loss_of(keras))
    model.optimizer.build(model.trainable_variables)
    saved = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    if sys.argv[1] == "on":
        for step in range(60):
            model.train_on_batch(*batch(data_of("float64"), step))
            wait_for_compiler()
        saved.write(f"{directory}/checkpoint")
        model.save(f"{directory}/model.keras")
    else:
        saved.read(f"{directory}/checkpoint").assert_consumed()
        loaded = keras.models.load_model(f"{directory}/model.keras")
        for one, other in zip(model.weights, loaded.weights, strict=True):
            assert (one.numpy() == other.numpy()).all(), one.path
    # Neither file format contains the states of seed generators.
    saved_variables = [variable for variable in _state(model) if "seed_generator" not in variable.path]
    return [float(abs(variable.numpy()).sum()) for variable in saved_variables]


def _state(model: Any) -> list[Any]:
    return [*model.variables, *model.optimizer.variables]


def varying_lengths() -> list[float]:
    """Sequences of many lengths, two of which are frequent."""
    weights = tf.Variable(tf.ones([8], tf.float64))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 8], tf.float64)])
    def step_of_lengths(sequences: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.reduce_sum(sequences * weights, -1)))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        # With noise, the compiler counts the first step too.
        return loss + 0.0 * tf.random.uniform([], dtype=tf.float64)

    generator = np.random.default_rng(1)
    losses = []
    session = choosing(lambda key: "xla")  # of steps that stay plain, it counts only the first ones
    for step in range(STEPS):
        length = (10, 20, 10, 21 + step)[step % 4]
        losses.append(float(step_of_lengths(generator.random((4, length, 8)))))
        if step < 100:
            wait_for_compiler()
    if session is not None:
        del session.stored_decision
    return losses


def new_seed() -> list[float]:
    """Stateful noise, which restarts when the script sets a seed."""
    tf.random.set_seed(1)
    weights = tf.Variable(tf.ones([24, 5], tf.float64))

    @tf.function
    def noisy_step(features: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(features @ (weights + tf.random.normal([24, 5], dtype=tf.float64))))
        weights.assign_sub(0.01 * tape.gradient(loss, weights))
        return loss

    losses = []
    for step in range(STEPS):
        if step == 100:
            tf.random.set_seed(7)
        losses.append(float(noisy_step(data_of("float64")[0][:BATCH])))
        if step < 12:
            wait_for_compiler()
    return losses


def other_noise(draw: Callable[[], Any]) -> list[float]:
    """Noise of a distribution whose numbers differ between XLA and TensorFlow."""
    tf.random.set_seed(3)
    weight = tf.Variable(1.0, dtype=tf.float64)

    @tf.function
    def noisy_step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(weight * tf.cast(draw(), tf.float64) * tf.range(1.0, 7.0, dtype=tf.float64))
        weight.assign_sub(1e-4 * tape.gradient(loss, weight))
        return loss

    losses = []
    for _ in range(30):
        losses.append(float(noisy_step()))
        wait_for_compiler()
    return losses


OTHER_NOISE: dict[str, Callable[[], Any]] = {
    "TruncatedNormal": lambda: tf.random.truncated_normal([6]),
    "RandomUniformInt": lambda: tf.random.uniform([6], 0, 100, tf.int32),
    "StatelessTruncatedNormalV2": lambda: tf.random.stateless_truncated_normal([6], [1, 2]),
    "StatelessRandomUniformIntV2": lambda: tf.random.stateless_uniform([6], [1, 2], 0, 100, tf.int32),
    "RandomGamma": lambda: tf.random.gamma([6], 1.5),
    "RandomPoissonV2": lambda: tf.random.poisson([6], 3.0),
    "RandomShuffle": lambda: tf.random.shuffle(tf.range(6.0)),
    "Multinomial": lambda: tf.random.categorical([[0.1, 0.2, 0.7]], 6),
}

CASES: dict[str, Callable[[], list[float]]] = {
    "fit": lambda: fit(keras, "float64"),
    "fit of tf_keras": lambda: fit(tf_keras, "float64"),
    "fit in float32": lambda: fit(keras, "float32"),
    "fit of convolutions": lambda: fit(keras, "float64", build=convolutions_of),
    "fit of recurrent layers": lambda: fit(keras, "float64", build=recurrent_of),
    "fit of recurrent layers with a smaller last batch": lambda: fit(
        keras, "float64", build=recurrent_of_any_size, left_out=5
    ),
    "fit of steps at once": lambda: fit(keras, "float64", build=dense_of, at_once=2),
    "fit of recurrent layers of tf_keras": lambda: fit(tf_keras, "float64", build=recurrent_of),
    "fit of recurrent layers with a smaller last batch, of tf_keras": lambda: fit(
        tf_keras, "float64", build=recurrent_of_any_size, left_out=5
    ),
    "fit of sizes by values": lambda: fit(keras, "float64", build=sizes_by_values_of),
    "fit with failing variants": fit_with_failing_variants,
    "fit of unknown length": lambda: fit_of_unknown_length(keras),
    "fit of unknown length of tf_keras": lambda: fit_of_unknown_length(tf_keras),
    "fit of batches at once": lambda: fit_of_batches_at_once("xla"),
    "fit of plain batches at once": lambda: fit_of_batches_at_once("plain"),
    "fit of batches at once with checks": checks_of_batches_at_once,
    "fit of plain batches at once of tf_keras": lambda: fit_of_batches_at_once("plain", tf_keras),
    "fit of batches at once, with updates in one kernel": lambda: fit_of_batches_at_once("fused"),
    "fit of batches at once, as in an earlier job": lambda: fit_of_batches_at_once("plain", of_function="at_once"),
    "later fit in xla": lambda: later_fit(keras, "xla"),
    "later fit in xla of tf_keras": lambda: later_fit(tf_keras, "xla"),
    "later fit in fused": lambda: later_fit(keras, "fused"),
    "later fit in plain": lambda: later_fit(keras, "plain"),
    "later fit in plain of tf_keras": lambda: later_fit(tf_keras, "plain"),
    "fit in a strategy's scope": lambda: fit(keras, "float64", tf.distribute.OneDeviceStrategy("/cpu:0").scope()),
    "fit of tf_keras in a strategy's scope": lambda: fit(
        tf_keras, "float64", tf.distribute.OneDeviceStrategy("/cpu:0").scope()
    ),
    "train_on_batch": lambda: train_on_batch(keras, "float64"),
    "train_on_batch of tf_keras": lambda: train_on_batch(tf_keras, "float64"),
    "loop": lambda: loop(keras, "float64"),
    "loop of gradients": lambda: loop(keras, "float64", applies=False),
    "loop of replicas": loop_of_replicas,
    "loop with a py_function": lambda: loop(keras, "float64", in_python=True),
    "new seed": new_seed,
    "same state": same_state,
    "checkpoint": checkpoint,
    "varying lengths": varying_lengths,
    **{name: functools.partial(other_noise, draw) for name, draw in OTHER_NOISE.items()},
}

if __name__ == "__main__":
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        if name in sys.argv[3:]:
            continue
        count = 0
        if sys.argv[1] == "on":
            from tidemill_tensorflow import compiler

            count = len(compiler._sessions[0].steps)
        losses = case()
        functions = []
        if sys.argv[1] == "on":
            functions = compiler._sessions[0].as_dict()["functions"][count:]
        found[name] = {"losses": losses, "functions": functions}
    print(json.dumps(found))
