"""Callbacks for `fit`, called as Keras calls them, on one rank or as the second of two."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import horovod.tensorflow as hvd
from groups import joined
from horovod.tensorflow.keras import callbacks

STEPS = 4


@pytest.fixture(autouse=True)
def _one_rank() -> Iterator[None]:
    hvd.init([])
    yield
    hvd.shutdown()


def model_of(**given: Any) -> Any:
    optimizer = SimpleNamespace(learning_rate=0.5, momentum=0.9, variables=[])
    return SimpleNamespace(**{"optimizer": optimizer, "run_eagerly": False, "variables": [], **given})


def begun(callback: Any, model: Any = None, **params: Any) -> Any:
    """Return a callback at the begin of a training."""
    callback.set_model(model or model_of())
    callback.set_params({"steps": STEPS, **params})
    callback.on_train_begin()
    return callback


def rates(callback: Any, *, epochs: int) -> list[list[float]]:
    """Return the learning rate of each batch, by epoch."""
    found = []
    for epoch in range(epochs):
        callback.on_epoch_begin(epoch)
        found.append([])
        for batch in range(STEPS):
            callback.on_batch_begin(batch)
            found[-1].append(float(callback.model.optimizer.learning_rate))
            callback.on_batch_end(batch)
        logs: dict[str, float] = {}
        callback.on_epoch_end(epoch, logs)
        assert logs == {"lr": found[-1][-1]}
    return found


def test_a_schedule_multiplies_the_initial_rate_in_its_epochs() -> None:
    schedule = callbacks.LearningRateScheduleCallback(0.2, lambda epoch: 0.1**epoch, start_epoch=1, end_epoch=3)
    expected = [[0.5] * STEPS, [0.02] * STEPS, [0.002] * STEPS, [0.002] * STEPS]
    np.testing.assert_allclose(rates(begun(schedule), epochs=4), expected)


def test_a_schedule_by_batches_gets_fractions_of_epochs_unless_it_is_a_number() -> None:
    smooth = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 1 + epoch, staircase=False)
    np.testing.assert_allclose(rates(begun(smooth), epochs=2), [[1.0, 1.25, 1.5, 1.75], [2.0, 2.25, 2.5, 2.75]])
    known = callbacks.LearningRateScheduleCallback(1.0, lambda epoch: 1 + epoch, staircase=False, steps_per_epoch=8)
    np.testing.assert_allclose(rates(begun(known, steps=None), epochs=1), [[1.0, 1.125, 1.25, 1.375]])
    number = callbacks.LearningRateScheduleCallback(1.0, 0.25, staircase=False)
    np.testing.assert_allclose(rates(begun(number, steps=None), epochs=1), [[0.25] * STEPS])


@pytest.mark.parametrize(
    ("eager", "corrects", "during"), [(True, True, 1.8), (False, True, 0.9), (True, False, 0.9)], ids=str
)
def test_momentum_is_scaled_for_the_batch_in_which_the_rate_changes(eager: bool, corrects: bool, during: float) -> None:
    model = model_of(run_eagerly=eager)
    schedule = begun(callbacks.LearningRateScheduleCallback(1.0, 1.0, momentum_correction=corrects), model)
    schedule.on_epoch_begin(0)
    schedule.on_batch_begin(0)
    assert model.optimizer.momentum == pytest.approx(during)
    schedule.on_batch_end(0)
    assert (model.optimizer.learning_rate, model.optimizer.momentum) == (1.0, 0.9)


def test_a_warm_up_ends_with_the_rate_of_all_ranks() -> None:
    with joined():
        found = rates(begun(callbacks.LearningRateWarmupCallback(2.0, warmup_epochs=2)), epochs=3)
        at_once = rates(begun(callbacks.LearningRateWarmupCallback(2.0, warmup_epochs=0)), epochs=1)
    assert found[0][0] == pytest.approx(2.0 * (1 + 0.125) / 2)
    assert found[1][-1] == found[2][-1] == 2.0, "nothing is set after the warm-up"
    assert np.all(np.diff(np.ravel(found[:2])) > 0)
    assert at_once == [[0.5] * STEPS], "the rate of the optimizer stays"


def test_the_first_rank_says_when_the_warm_up_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    rates(begun(callbacks.LearningRateWarmupCallback(2.0, warmup_epochs=2, verbose=1)), epochs=3)
    assert capsys.readouterr().out == "\nEpoch 2: finished gradual learning rate warmup to 2.\n"
    with joined():
        rates(begun(callbacks.LearningRateWarmupCallback(2.0, warmup_epochs=1, verbose=1)), epochs=2)
    assert not capsys.readouterr().out


def test_rates_and_lengths_that_make_no_schedule_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="LearningRateScheduleCallback: initial_lr is 0; allowed is a number > 0"):
        callbacks.LearningRateScheduleCallback(0, 1.0)
    with pytest.raises(ValueError, match="LearningRateWarmupCallback: initial_lr is nan"):
        callbacks.LearningRateWarmupCallback(float("nan"))
    with pytest.raises(ValueError, match="LearningRateWarmupCallback: steps_per_epoch is None, and fit does not know"):
        begun(callbacks.LearningRateWarmupCallback(1.0), steps=None)


def test_metrics_are_averaged_in_one_order_and_what_is_no_number_stays() -> None:
    logs: dict[str, Any] = {"loss": 4.0, "accuracy": np.float32(2.0), "matrix": [1.0, 2.0]}
    average = begun(callbacks.MetricAverageCallback())
    average.on_epoch_end(0, logs)
    assert logs == {"loss": 4.0, "accuracy": 2.0, "matrix": [1.0, 2.0]}, "there is one rank"
    with joined() as pair:
        average.on_epoch_end(0, None)
        assert not pair.sent
        average.on_epoch_end(0, logs)
        assert [each.tolist() for each in pair.sent] == [[2.0, 4.0]], "by name, as on the other ranks"
    assert logs == {"loss": 0.0, "accuracy": 0.0, "matrix": [1.0, 2.0]}, "the pair's sum is 0"


@pytest.mark.parametrize("is_function", [False, True], ids=["Keras 3", "older optimizers"])
def test_variables_are_broadcast_once_after_the_first_batch_without_local_ones(is_function: bool) -> None:
    shared, local, registered, slot = (tf.keras.Variable([value]) for value in (1.0, 2.0, 3.0, 4.0))
    optimizer = SimpleNamespace(variables=(lambda: [slot]) if is_function else [slot])
    model = model_of(variables=[shared, local, registered], optimizer=optimizer)
    with joined():
        broadcast = begun(callbacks.BroadcastGlobalVariablesCallback(0, local_variables=[local.value]), model)
        broadcast.register_local_var(registered)
        for batch in range(2):
            broadcast.on_batch_end(batch)
        found = [float(one.numpy()[0]) for one in (shared, local, registered, slot)]
        assert found == [-1.0, 2.0, 3.0, -4.0], "once: the pair negates what it sends"
        late = begun(callbacks.BroadcastGlobalVariablesCallback(2), model)
        with pytest.raises(ValueError, match="root_rank is 2; allowed is 0 to 1"):
            late.on_batch_end(0)
        assert not late.broadcast_done


def test_the_best_model_is_written_by_the_first_rank_alone(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="filepath is None; give the path of the model file"):
        callbacks.BestModelCheckpoint()
    model = mock.MagicMock()
    model.optimizer = None
    path = str(tmp_path / "best.keras")
    for loss in (2.0, 3.0, 1.0):
        if loss == 2.0:
            best = begun(callbacks.BestModelCheckpoint(path), model)
        best.on_epoch_end(0, {"val_loss": loss})
    assert [call.args for call in model.save.call_args_list] == [(path,)] * 2, "3.0 is no better than 2.0"
    with joined():
        best.on_epoch_end(3, {"val_loss": 0.5})
    assert model.save.call_count == 2
