"""The shims for Keras 2: each shim, all of them in a script, and their complete removal."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import func_graph

from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow import legacy_keras

pytestmark = pytest.mark.smp_long

SCRIPT = Path(__file__).parent / "scripts" / "digits_of_keras_2.py"


# Keras converts variables in a way that NumPy 2 deprecates.
keras_saves = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture
def compat() -> Iterator[None]:
    assert legacy_keras.install()
    yield
    legacy_keras.uninstall()


def run_script(tmp_path: Path, **environment: str) -> Any:
    process = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)], env=os.environ | environment, capture_output=True, text=True
    )
    if process.returncode:
        return process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.parametrize(("legacy", "version"), [("0", "keras"), ("1", "tf_keras")])
def test_a_script_of_keras_2_trains_evaluates_saves_and_restores(tmp_path: Path, legacy: str, version: str) -> None:
    report = run_script(tmp_path, TF_USE_LEGACY_KERAS=legacy)
    assert isinstance(report, dict), report
    assert report["keras"] == version
    assert report["gap"] == 0
    assert report["losses"][-1] < report["losses"][0] / 2
    assert report["accuracy"] > 0.8
    assert report["optimizer_variables"] > 8
    assert report["restored"] is True
    for difference in ("served", "called", "predicted"):
        assert report.get(difference, 0) < 1e-5


def test_the_script_fails_without_the_compatibility_functions(tmp_path: Path) -> None:
    assert "AttributeError: 'Mean' object has no attribute 'reset_states'" in run_script(
        tmp_path, SMP_KERAS2_COMPAT="0"
    )


def surfaces() -> dict[str, Any]:
    """Return all attributes that a shim changes, and all others of the same classes and modules."""
    found: dict[str, Any] = {}
    spaces = [importlib.import_module(name) for name in ("keras", "keras._tf_keras.keras")]
    owners = [keras.metrics.Metric, *keras.optimizers.Adam.__mro__, keras.optimizers.LossScaleOptimizer]
    owners += [c for c in vars(keras.optimizers.schedules).values() if isinstance(c, type)]
    rooms = ("models", "saving", "optimizers.legacy")
    owners += [importlib.import_module(f"{space.__name__}.{room}") for space in spaces for room in rooms]
    for owner in owners:
        found |= {f"{owner.__name__}.{name}": value for name, value in vars(owner).items() if name != "__doc__"}
    return found


def test_replaced_attributes_are_restored() -> None:
    before = surfaces()
    legacy_keras.install()
    legacy_keras.install()
    changed = {name for name, value in surfaces().items() if before.get(name) is not value}
    assert legacy_keras.is_installed()
    legacy_keras.uninstall()
    legacy_keras.uninstall()
    assert not legacy_keras.is_installed()
    after = surfaces()
    assert set(after) == set(before)
    assert [name for name in before if before[name] is not after[name]] == []
    for name in (
        "Optimizer.get_gradients",
        "Metric.reset_states",
        "ExponentialDecay.__init__",
        "keras.saving.load_model",
    ):
        assert name in changed


@pytest.mark.parametrize("switch", ["0", "false", "OFF"])
def test_the_compatibility_functions_can_be_switched_off(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    assert legacy_keras.install(enabled=False) is False
    monkeypatch.setenv(legacy_keras.SWITCH, switch)
    assert legacy_keras.install() is False
    assert not hasattr(keras.optimizers.Adam, "get_gradients")


def test_importing_the_module_patches_nothing() -> None:
    code = (
        "import smdistributed.modelparallel.tensorflow.legacy_keras as k, tensorflow as tf;"
        "assert not k.is_installed(); assert not hasattr(tf.keras.metrics.Metric, 'reset_states')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# --- gradients --------------------------------------------------------------------------------------------------------


@tf.custom_gradient
def doubled(x: Any) -> Any:
    return x * 2, lambda upstream: upstream * 2


class Rich(keras.Model):
    """A model with all kinds of special gradients."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding = keras.layers.Embedding(10, 4)
        self.gru = keras.layers.GRU(5)
        self.norm = keras.layers.BatchNormalization()
        self.head = keras.layers.Dense(3)
        # Keras builds a model by calling it statelessly; a function that traces the layer then would keep that trace.
        self.head.build((None, 5))
        self.inner = tf.function(lambda x: self.head(x))

    def call(self, x: Any, training: Any = None) -> Any:
        hidden = self.norm(self.gru(self.embedding(x)), training=training)
        short = tf.cond(tf.reduce_sum(hidden) > 0, lambda: doubled(hidden), lambda: hidden * 3)
        looped = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h)), (0, short))[1]
        return self.inner(looped)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_gradients_without_a_tape_equal_those_of_a_tape_in_a_graph_as_steps_trace_it(compat: None, dtype: str) -> None:
    keras.utils.set_random_seed(3)
    model, optimizer = Rich(dtype=keras.DTypePolicy(dtype)), keras.optimizers.Adam()
    x, y = np.arange(28).reshape(4, 7) % 10, np.arange(4) % 3

    def body(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x, training=True), True))
        by_tape = tape.gradient(loss, model.trainable_variables)
        found = optimizer.get_gradients(loss, model.trainable_variables)
        assert [type(grad) for grad in found] == [type(grad) for grad in by_tape]
        assert isinstance(found[0], tf.IndexedSlices)
        return [tf.convert_to_tensor(grad) for grad in found], [tf.convert_to_tensor(grad) for grad in by_tape]

    specs = (tf.TensorSpec(x.shape, tf.int64), tf.TensorSpec(y.shape, tf.int64))
    graph = func_graph.func_graph_from_py_func("step", tf.autograph.experimental.do_not_convert(body), specs, {})
    assert len(graph.structured_outputs[0]) == 8
    found, by_tape = tf.function(body, input_signature=specs, autograph=False)(x, y)
    for mine, theirs in zip(found, by_tape, strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert np.abs(mine).max() > 0


def test_a_variable_without_a_gradient_is_named(compat: None) -> None:
    used, lost = keras.Variable(1.0, name="used"), keras.Variable(1.0, name="lost")
    optimizer = keras.optimizers.SGD()

    @tf.function
    def gradients(get: Callable[..., Any]) -> Any:
        return get(used * 2.0, [used, lost])

    with pytest.raises(ValueError, match="no gradient with respect to 'lost'"):
        gradients(optimizer.get_gradients)

    @tf.function
    def pairs() -> Any:
        (first, same), (second, other) = optimizer.compute_gradients(
            used * 2.0, [used, lost], grad_loss=tf.constant(3.0)
        )
        assert same is used
        assert other is lost
        assert second is None
        return first

    assert pairs().numpy() == 6


def test_gradients_outside_a_graph_are_refused_or_come_from_a_tape(compat: None) -> None:
    variable, optimizer = keras.Variable(3.0), keras.optimizers.SGD()
    with pytest.raises(SMPUsageError, match=r"SGD\.get_gradients works on a graph.*@smp\.step"):
        optimizer.get_gradients(variable * 2.0, [variable])
    [(gradient, _)] = optimizer.compute_gradients(lambda: variable * variable, [variable])
    assert gradient.numpy() == 6
    with tf.GradientTape() as tape:
        loss = variable * 5.0
    assert optimizer.compute_gradients(loss, [variable], tape=tape)[0][0].numpy() == 5
    with pytest.raises(ValueError, match="var_list is missing"):
        optimizer.compute_gradients(loss)
    optimizer.build([variable])
    assert optimizer.compute_gradients(lambda: variable * 4.0)[0][0].numpy() == 4


def test_both_families_of_tf_keras_optimizers_return_gradients() -> None:
    code = """
import tensorflow as tf
from smdistributed.modelparallel.tensorflow import legacy_keras
legacy_keras.install()
v, lost = tf.Variable(3.0), tf.Variable(1.0, name="lost")
for make in (tf.keras.optimizers.SGD, tf.keras.optimizers.legacy.SGD):
    optimizer = make(0.1)
    @tf.function
    def run():
        grads = optimizer.get_gradients(v * v, [v])
        [(same, _)] = optimizer.compute_gradients(v * v, [v])
        try:
            optimizer.get_gradients(v * v, [v, lost])
        except ValueError as error:
            assert "'lost:0'" in str(error), error
        else:
            raise AssertionError("no error")
        return grads[0], same
    assert [float(g) for g in run()] == [6.0, 6.0]
    assert [float(g) for g, _ in optimizer.compute_gradients(lambda: v * v, [v])] == [6.0]
    with tf.GradientTape() as tape:
        loss = v * v
    assert [float(g) for g, _ in optimizer.compute_gradients(loss, [v], tape=tape)] == [6.0]
legacy_keras.uninstall()
assert not hasattr(tf.keras.optimizers.SGD(), "get_gradients")
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | {"TF_USE_LEGACY_KERAS": "1"})


# --- the other shims --------------------------------------------------------------------------------------------------


def test_the_variables_of_an_optimizer_are_a_list_that_can_be_called(compat: None) -> None:
    variable = keras.Variable(1.0)
    for optimizer in (keras.optimizers.Adam(), keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())):
        optimizer.build([variable])
        assert isinstance(optimizer.variables, list)
        assert [v.path for v in optimizer.variables()] == [v.path for v in optimizer.variables]
        assert len(optimizer.variables()) >= 4


def test_legacy_optimizers_are_those_of_today_with_the_old_arguments(compat: None) -> None:
    for space in (keras, tf.keras):
        adam = space.optimizers.legacy.Adam(lr=0.5, beta_1=0.8)
        assert isinstance(adam, keras.optimizers.Adam)
        assert isinstance(adam, space.optimizers.legacy.Optimizer)
        assert float(adam.lr) == 0.5
        adam.lr = 0.25
        assert float(adam.learning_rate) == 0.25
        assert space.optimizers.legacy.SGD(0.1, momentum=0.9, clipnorm=1.0, decay=0.0).momentum == 0.9
    for name in ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD"):
        assert getattr(tf.keras.optimizers.legacy, name)().name.replace("_", "").startswith(name.lower())
    with pytest.raises(TypeError, match="lr is another name of learning_rate"):
        keras.optimizers.legacy.SGD(0.1, lr=0.1)


def test_decay_divides_the_learning_rate_by_the_iterations(compat: None) -> None:
    optimizer, variable = keras.optimizers.legacy.SGD(lr=1.0, decay=0.5), keras.Variable(0.0)
    steps = []
    for _ in range(3):
        before = float(variable)
        optimizer.apply_gradients([(tf.constant(-1.0), variable)])
        steps.append(float(variable) - before)
    np.testing.assert_allclose(steps, [1, 1 / 1.5, 1 / 2], rtol=1e-6)
    assert float(keras.optimizers.legacy.Adam(decay=1.0).learning_rate) == pytest.approx(0.001)
    with pytest.raises(ValueError, match="is a schedule already"):
        keras.optimizers.legacy.SGD(keras.optimizers.schedules.ExponentialDecay(1.0, 1, 1.0), decay=0.5)


@keras_saves
def test_a_model_with_a_legacy_optimizer_is_loaded_without_the_compatibility_functions(tmp_path: Path) -> None:
    legacy_keras.install()
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.legacy.Adam(lr=0.125), "mse")
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    model.save(tmp_path / "model.keras")
    legacy_keras.uninstall()
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is keras.optimizers.Adam
    assert float(loaded.optimizer.learning_rate) == 0.125


def test_metrics_are_reset_by_their_old_name(compat: None) -> None:
    metric = keras.metrics.Mean()
    metric.update_state(4.0)
    metric.reset_states()
    assert float(metric.result()) == 0


@pytest.mark.parametrize("name", ["ExponentialDecay", "InverseTimeDecay", "CosineDecay", "PolynomialDecay"])
def test_schedules_without_a_name_work(compat: None, name: str) -> None:
    make = getattr(tf.keras.optimizers.schedules, name)
    more = (0.9,) if name in ("ExponentialDecay", "InverseTimeDecay") else ()
    schedule = make(1.0, 10, *more, name=None)
    assert float(schedule(3)) == float(make(1.0, 10, *more)(3))
    assert schedule.get_config()["name"] == name
    assert make(1.0, 10, *more, name="own").name == "own"


def test_saved_models_keep_the_order_of_several_inputs(compat: None, tmp_path: Path) -> None:
    path = str(tmp_path / "two")
    z, a = keras.Input((2,), name="z"), keras.Input((2,), name="a")
    difference = keras.layers.Subtract()([z, a])
    keras.Model([z, a], [difference, keras.layers.Dense(1)(difference)]).export(path, verbose=False)
    loaded: Any = tf.keras.models.load_model(path)
    ones, threes = np.ones((5, 2)), np.full((5, 2), 3)
    outputs = loaded.signatures["serving_default"](a=threes, z=ones)
    assert outputs["output_0"].numpy().tolist() == [[-2, -2]] * 5
    first, second = loaded([ones, threes])
    assert first.numpy().tolist() == [[-2, -2]] * 5
    assert second.shape == (5, 1)
    assert loaded({"z": ones, "a": threes})[0].numpy().tolist() == [[-2, -2]] * 5
    assert loaded.predict([ones, threes], batch_size=2)[0].tolist() == [[-2, -2]] * 5
    with pytest.raises(TypeError, match=r"takes 2 inputs, each once and by name: a, z\. Received: 2 by position"):
        loaded.signatures["serving_default"](ones, threes)
    with pytest.raises(SMPUsageError, match="cannot run with training=True"):
        loaded([ones, threes], training=True)


@keras_saves
def test_other_files_are_loaded_by_keras(compat: None, tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.save(tmp_path / "model.keras")
    assert isinstance(keras.saving.load_model(tmp_path / "model.keras"), keras.Sequential)
    with pytest.raises(ValueError, match="not found"):
        keras.models.load_model(tmp_path / "nothing.keras")
