"""Callbacks of `fit` that keep weights: each rank's weights are restored."""

import contextlib
import io
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import models
import ranks
import smdistributed.modelparallel.tensorflow as smp
from checkpoints import CONFIG, forget_the_step_before, held, merged
from smdistributed.modelparallel.backend.exceptions import SMPRemoteVariableError, SMPUsageError
from smdistributed.modelparallel.tensorflow.saving.weights import RemoteWeight

pytestmark = pytest.mark.smp_long

KERASES = pytest.mark.parametrize("environment", [{}, {"TF_USE_LEGACY_KERAS": "1"}], ids=["keras", "tf_keras"])


def data() -> Any:
    random = np.random.RandomState(1)
    return random.randn(16, models.FEATURES).astype("float32"), random.randn(16, models.CLASSES).astype("float32")


def made(seed: int = 3) -> Any:
    forget_the_step_before()
    tf.keras.utils.set_random_seed(seed)
    model = models.distributed(models.Chain)(smp.mp_size())
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
    return model


def stopped_early() -> Any:
    """Make training worse from the second epoch on by growing steps; return the values on each rank at the end."""
    at_best: dict[str, Any] = {}
    model, (x, y) = made(), data()

    def worse(epoch: int, logs: Any) -> None:
        logs["chosen"] = 1.0 if epoch == 1 else 2.0 + epoch
        if epoch == 1:
            at_best.update(held(model, model.optimizer))

    callbacks = [
        tf.keras.callbacks.LambdaCallback(on_epoch_end=worse),
        tf.keras.callbacks.EarlyStopping("chosen", mode="min", patience=2, restore_best_weights=True),
    ]
    history = model.fit(x, y, batch_size=8, epochs=9, verbose=0, callbacks=callbacks)
    now = held(model, model.optimizer)
    return len(history.history["loss"]), *(
        {name: value for name, value in part.items() if name.startswith("model")} for part in (at_best, now)
    )


@KERASES
def test_early_stopping_restores_the_best_weights(environment: dict[str, str]) -> None:
    epochs, best, now = zip(*ranks.run(2, stopped_early, config=CONFIG, environment=environment), strict=True)
    assert epochs == (4, 4)
    best, now = merged(best), merged(now)
    assert len(best) == 10 and best.keys() == now.keys()
    for name, value in best.items():
        np.testing.assert_array_equal(now[name], value, err_msg=name)


def get_and_set_weights() -> Any:
    """Get weights, train, and set them again; use a marker as a value, and set weights that do not match."""
    model, (x, y) = made(), data()
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    before, taken = held(model, model.optimizer), model.get_weights()
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    trained = held(model, model.optimizer)
    model.set_weights(taken)
    after = held(model, model.optimizer)
    names = [name for name in before if name.startswith("model")]
    is_back = all(np.array_equal(before[name], after[name]) for name in names)
    has_changed = any(not np.array_equal(before[name], trained[name]) for name in names)

    messages = []
    marker = next(weight for weight in taken if isinstance(weight, RemoteWeight))
    for function in (
        lambda: np.asarray(marker),
        lambda: model.set_weights(taken[1:]),
        lambda: model.set_weights([marker] * len(taken)),
    ):
        try:
            function()
        except (SMPRemoteVariableError, SMPUsageError) as error:
            messages.append(str(error))
    return is_back, has_changed, len(taken), messages


@KERASES
def test_get_weights_and_set_weights_use_the_variables_of_the_rank(environment: dict[str, str]) -> None:
    for rank, result in enumerate(ranks.run(2, get_and_set_weights, config=CONFIG, environment=environment)):
        is_back, has_changed, count, messages = result
        assert (is_back, has_changed, count) == (True, True, 10)
        assert f"held by rank {1 - rank}" in messages[0] and "save_weights" in messages[0]
        assert "got 9 weights; the model has 10" in messages[1]
        assert "shape" in messages[2]


def backed_up(directory: str) -> str:
    model, (x, y) = made(), data()
    try:
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[tf.keras.callbacks.BackupAndRestore(directory)])
    except SMPUsageError as error:
        return str(error)
    raise AssertionError


@KERASES
def test_backup_and_restore_is_refused(tmp_path: Any, environment: dict[str, str]) -> None:
    for message in ranks.run(2, backed_up, str(tmp_path / "backup"), config=CONFIG, environment=environment):
        assert "BackupAndRestore" in message and "smp.CheckpointManager" in message


class Measured(tf.keras.layers.Layer):
    """A dense layer with a metric of its mean output."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(models.CLASSES)
        self.size = tf.keras.metrics.Mean(name="size")

    def call(self, x: Any) -> Any:
        x = self.dense(x)
        self.size.update_state(tf.abs(x))
        return x


class WithMetric(models.Chain):
    """A model with a metric in its last partition."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.head = Measured()


def kept_by_checkpoints(path: str) -> bool:
    """Keep the weights of a model with a layer metric by a callback; return whether they are restored."""
    forget_the_step_before()
    tf.keras.utils.set_random_seed(3)
    model, (x, y) = models.distributed(WithMetric)(smp.mp_size()), data()
    model.compile(tf.keras.optimizers.Adam(0.01), "mse")
    keep = tf.keras.callbacks.ModelCheckpoint(path, save_weights_only=True)
    model.fit(x, y, batch_size=8, verbose=0, callbacks=[keep])
    before = [np.array(variable) for variable in smp.local_variables(model)]
    model.fit(x, y, batch_size=8, verbose=0)
    model.load_weights(path)
    after = smp.local_variables(model)
    return all(np.array_equal(value, variable) for value, variable in zip(before, after, strict=True))


def served_as_predicted(path: str) -> tuple[float, str]:
    """Save a model with a layer metric; return the gap of served outputs to predictions, and the printed text."""
    forget_the_step_before()
    model, (x, y) = models.distributed(WithMetric)(smp.mp_size()), data()
    model.compile("sgd", "mse")
    model.fit(x, y, batch_size=8, verbose=0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        model.save_model(path)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    return float(np.abs(serve(tf.constant(x))["output_0"] - model.predict(x, verbose=0)).max()), printed.getvalue()


@KERASES
def test_a_model_with_a_metric_in_a_layer_is_saved(tmp_path: Any, environment: dict[str, str]) -> None:
    path = str(tmp_path / "model")
    for gap, printed in ranks.run(2, served_as_predicted, path, config=CONFIG, environment=environment):
        assert gap < 1e-6
        assert printed == ""


@KERASES
def test_checkpoints_hold_a_model_with_a_metric_in_a_layer(tmp_path: Any, environment: dict[str, str]) -> None:
    path = str(tmp_path / "kept.weights.h5")
    assert ranks.run(2, kept_by_checkpoints, path, config=CONFIG, environment=environment) == [True, True]
