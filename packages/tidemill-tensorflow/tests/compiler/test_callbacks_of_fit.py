"""What callbacks of `fit` mean for the compiler: whether they look at batches, and whether they may end a training."""

from __future__ import annotations

import functools
from typing import Any

import keras
import pytest
import tf_keras

from tidemill_tensorflow.compiler.several.keras_batches import _looks_at_batches, _may_stop

LIBRARIES = pytest.mark.parametrize("library", [keras, tf_keras], ids=["Keras 3", "tf_keras"])


def callback_of(library: Any, **methods: Any) -> Any:
    """Return a callback of the script with some methods."""
    return type("OfTheScript", (library.callbacks.Callback,), methods)()


@LIBRARIES
def test_callbacks_of_epochs_do_not_look_at_batches(library: Any, tmp_path: Any) -> None:
    callbacks = library.callbacks
    path = str(tmp_path / "model.keras")
    of_epochs = [
        callbacks.History(),
        callbacks.EarlyStopping(),
        callbacks.CSVLogger(str(tmp_path / "log")),
        callbacks.ModelCheckpoint(path),
        callbacks.LearningRateScheduler(lambda epoch: 0.1),
        callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
        callback_of(library, on_epoch_begin=lambda *_: None, on_test_batch_end=lambda *_: None),
    ]
    assert [type(each).__name__ for each in of_epochs if _looks_at_batches(each)] == []


@LIBRARIES
def test_callbacks_with_a_hook_for_batches_look_at_batches(library: Any, tmp_path: Any) -> None:
    callbacks = library.callbacks
    own = callback_of(library)
    own.on_train_batch_end = lambda batch, logs: None  # on the instance
    of_batches = [
        own,
        *(callback_of(library, **{hook: lambda *_: None}) for hook in ("on_batch_begin", "on_train_batch_begin")),
        callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
        callbacks.ModelCheckpoint(str(tmp_path / "model.keras"), save_freq=3),
        callbacks.TerminateOnNaN(),
        object(),
    ]
    assert [type(each).__name__ for each in of_batches if not _looks_at_batches(each)] == []


@LIBRARIES
def test_a_callback_may_stop_if_its_code_mentions_that(library: Any) -> None:
    def directly(self: Any, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = True

    def inside(self: Any, epoch: int, logs: Any = None) -> None:
        def stop() -> None:
            self.model.stop_training = True

        stop()

    def by_string(self: Any, epoch: int, logs: Any = None) -> None:
        setattr(self.model, "stop_training", True)  # noqa: B010 - as scripts may do

    callbacks = library.callbacks
    stopping = [callback_of(library, on_epoch_end=each) for each in (directly, inside, by_string)]
    stopping += [callbacks.EarlyStopping(), callbacks.TerminateOnNaN()]
    stopping += [callbacks.LambdaCallback(on_epoch_end=functools.partial(directly).func)]
    assert [_may_stop(each) for each in stopping] == [True] * 6
    going_on = [
        callback_of(library, on_epoch_end=lambda *_: None),
        callbacks.History(),
        callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
        callbacks.LearningRateScheduler(lambda epoch: 0.1),
    ]
    assert [_may_stop(each) for each in going_on] == [False] * 4
