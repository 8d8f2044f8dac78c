"""Callbacks of `fit` that keep weights: what each rank holds comes back."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import models
import ranks
import smdistributed.modelparallel.tensorflow as smp
from checkpoints import CONFIG, forget_the_step_before, held, merged
from smdistributed.modelparallel.backend.exceptions import SMPForeignVariableError, SMPUsageError
from smdistributed.modelparallel.tensorflow.saving.weights import HeldElsewhere

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
    """Let training get worse from the second epoch on, by a larger and larger step; what each rank holds then."""
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


def weights_in_all_ways() -> Any:
    """Take weights, train on, put them back; use a marker as a value, and set weights that do not fit."""
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

    said = []
    marker = next(weight for weight in taken if isinstance(weight, HeldElsewhere))
    for function in (
        lambda: np.asarray(marker),
        lambda: model.set_weights(taken[1:]),
        lambda: model.set_weights([marker] * len(taken)),
    ):
        try:
            function()
        except (SMPForeignVariableError, SMPUsageError) as error:
            said.append(str(error))
    return is_back, has_changed, len(taken), said


@KERASES
def test_weights_are_taken_and_put_back_where_they_are_held(environment: dict[str, str]) -> None:
    for rank, result in enumerate(ranks.run(2, weights_in_all_ways, config=CONFIG, environment=environment)):
        is_back, has_changed, count, said = result
        assert (is_back, has_changed, count) == (True, True, 10)
        assert f"held by rank {1 - rank}" in said[0] and "save_weights" in said[0]
        assert "got 9 weights; the model has 10" in said[1]
        assert "shape" in said[2]


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
