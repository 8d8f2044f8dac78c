"""What the tests of checkpoints run on the ranks."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import models
import smdistributed.modelparallel.tensorflow as smp
from smdistributed.modelparallel.tensorflow import session
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign

CONFIG = {"auto_partition": False, "default_partition": 0, "microbatches": 2}
BATCH = 8


def forget_the_step_before() -> None:
    """Begin as after `smp.init`: nothing is partitioned."""
    session.set_current(dataclasses.replace(session.current()))


class Training:
    """A model with its optimizer and a counter of steps, and how a script trains it."""

    def __init__(self, model: str = "chain", *, seed: int = 3, cut_for: int | None = None) -> None:
        forget_the_step_before()
        keras.utils.set_random_seed(seed)
        self.model = models.distributed(models.MODELS[model])(cut_for or smp.mp_size())
        self.optimizer = keras.optimizers.Adam(0.01)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self.checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer, step=self.step)
        self._train: Any = None

    def manager(self, directory: str | Path, **options: Any) -> smp.CheckpointManager:
        """The manager of the checkpoints in a directory."""
        return smp.CheckpointManager(self.checkpoint, directory, **options)

    def run_to(self, last: int) -> None:
        """Train until the counter says `last`; each batch depends on the number of its step."""
        if self._train is None:
            self._train = self._make()
        for number in range(int(self.step), last):
            random = np.random.RandomState(number)
            x = random.randn(BATCH, models.FEATURES).astype("float32")
            y = random.randn(BATCH, models.CLASSES).astype("float32")
            self._train(tf.constant(x), tf.constant(y))
            self.step.assign_add(1)

    def _make(self) -> Any:
        model, optimizer = self.model, self.optimizer

        @smp.step
        def forward_backward(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = models.loss_of(model, x, y)
            return tape.gradient(loss, model.trainable_variables), loss

        @tf.function
        def train(x: Any, y: Any) -> Any:
            grads, loss = forward_backward(x, y)
            variables = model.trainable_variables
            optimizer.apply_gradients(zip([grad.accumulate() for grad in grads], variables, strict=True))
            return loss.reduce_mean()

        return train

    def held(self) -> dict[str, Any]:
        """What this rank holds, model and optimizer, by place."""
        listed = [("model", self.model.variables), ("optimizer", self.optimizer.variables)]
        return {
            f"{whose}/{number}": np.array(variable)
            for whose, variables in listed
            for number, variable in enumerate(variables)
            if not is_foreign(variable)
        }


def trained(model: str, last: int, **options: Any) -> dict[str, Any]:
    """Train without interruption."""
    training = Training(model, **options)
    training.run_to(last)
    return training.held()


def interrupted(model: str, directory: str, pause: int, last: int, when: str, **options: Any) -> dict[str, Any]:
    """Train, save, begin anew, restore before or after the first step, and go on."""
    training = Training(model, **options)
    training.run_to(pause)
    training.manager(directory).save()
    return resumed(model, directory, last, when, **options)


def resumed(model: str, directory: str, last: int, when: str, prefix: str | None = None, **options: Any) -> Any:
    """Begin anew with other weights, restore, and go on."""
    training = Training(model, seed=99, **options)
    manager = training.manager(directory)
    if when == "after":
        training.run_to(1)
    assert manager.restore(prefix) is not None
    assert int(training.step) > 1, "the counter is restored at once"
    training.run_to(last)
    return training.held()


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all ranks hold, and that they agree on it."""
    whole: dict[str, Any] = {}
    for held in results:
        for name, value in held.items():
            np.testing.assert_array_equal(whole.setdefault(name, value), value)
    return whole


def assert_equal(left: dict[str, Any], right: dict[str, Any], tolerance: float = 0.0) -> None:
    """The same variables with the same values."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=tolerance, atol=tolerance, err_msg=name)
