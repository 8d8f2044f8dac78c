"""Pipelined steps for Keras's `fit`, `evaluate` and `predict` loops."""

import logging
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Gradient, KerasModel, Logs, Tensor
from smdistributed.modelparallel.tensorflow.batch_loss import BatchLoss
from smdistributed.modelparallel.tensorflow.keras_api import (
    hears_training,
    loss_of,
    metrics_after,
    scaled_loss,
    set_random_seed,
    unpack,
    unscaled,
)
from smdistributed.modelparallel.tensorflow.keras_losses import dividing
from smdistributed.modelparallel.tensorflow.keras_notes import notes_of, with_notes
from smdistributed.modelparallel.tensorflow.marks import SmpModel, tracer
from smdistributed.modelparallel.tensorflow.session import current
from smdistributed.modelparallel.tensorflow.stepping.output import StepOutput
from smdistributed.modelparallel.tensorflow.stepping.step import StepFunction, step
from tensorflow.python.eager import context

log = logging.getLogger("smdistributed.modelparallel")


class Steps:
    """The training, evaluation and prediction steps of one model."""

    def __init__(self, model: SmpModel) -> None:
        self._model = model
        self._training = self._undecorated(self._train_microbatch)
        self._evaluation = self._undecorated(self._evaluate_microbatch)
        self._prediction = self._undecorated(self._predict_microbatch)

    def train(self, data: object) -> Logs:
        """Run one training step on a batch, and return the metrics.

        Args:
            data: A batch as Keras's `train_step` gets it.
        """
        model = self._model
        x, y, sample_weight = unpack(data)
        grads, loss, y_pred, notes = self._training(x, y, sample_weight)
        variables = model.trainable_variables
        if variables:
            means = [grad if grad is None else grad.accumulate() for grad in grads]
            model.optimizer.apply_gradients(zip(unscaled(model.optimizer, means), variables, strict=True))
        return metrics_after(model, _whole(loss), x, y, _noted(y_pred, notes), sample_weight)

    def evaluate(self, data: object) -> Logs:
        """Evaluate one batch, and return the metrics.

        Args:
            data: A batch as Keras's `test_step` gets it.

        Returns:
            Metrics by name.
        """
        model = self._model
        x, y, sample_weight = unpack(data)
        loss, y_pred, notes = self._evaluation(x, y, sample_weight)
        return metrics_after(model, _whole(loss), x, y, _noted(y_pred, notes), sample_weight)

    def predict(self, data: object) -> object:
        """Predict one batch of any size: pad it to equal microbatches, and drop the padding from the result.

        Args:
            data: A batch as Keras's `predict_step` gets it.

        Returns:
            Outputs with as many rows as the batch.
        """
        x, _, _ = unpack(data)
        size = _size(x)
        y_pred = _merged(self._prediction(tf.nest.map_structure(_filled, x)))
        return tf.nest.map_structure(operator.itemgetter(slice(size)), y_pred)

    def _train_microbatch(
        self, x: object, y: object, sample_weight: object
    ) -> tuple[list[Gradient | None], Tensor, object, list[dict[str, Any]]]:
        model = self._model
        with tf.GradientTape() as tape:
            y_pred = self._call(x, training=True)
            batch = self._batch(x)
            with dividing(model, batch):
                loss = loss_of(model, x, y, y_pred, sample_weight, training=True)
            scaled = scaled_loss(model.optimizer, batch.to_differentiate(loss))
        return tape.gradient(scaled, model.trainable_variables), loss, y_pred, _notes(y_pred)

    def _evaluate_microbatch(
        self, x: object, y: object, sample_weight: object
    ) -> tuple[Tensor, object, list[dict[str, Any]]]:
        y_pred = self._call(x, training=False)
        with dividing(self._model, self._batch(x)):
            loss = loss_of(self._model, x, y, y_pred, sample_weight, training=False)
        return loss, y_pred, _notes(y_pred)

    def _predict_microbatch(self, x: object) -> object:
        return self._call(x, training=False)

    def _batch(self, x: object) -> BatchLoss:
        state = tracer()
        assert state is not None, "called inside a step"
        return BatchLoss(_first(x), state, current(), _reported(self._model))

    def _call(self, x: object, *, training: bool) -> Any:
        model = self._model
        return model(x, training=training) if hears_training(model._smp_plain()) else model(x)

    @staticmethod
    def _undecorated(body: Callable[..., Any]) -> StepFunction:
        function: StepFunction = step(tf.autograph.experimental.do_not_convert(body))
        return function


def agree_on_shuffling() -> None:
    """Set one random seed on the ranks of a replica, which must shuffle alike, unless the script has set a seed."""
    session = current()
    if session.config.partitions > 1 and context.global_seed() is None:
        seeds = session.mp_group.allgather_objects(int(np.random.randint(1 << 31)))
        set_random_seed(seeds[0])


def refuse_backups(callbacks: object) -> None:
    """Refuse `BackupAndRestore`, which would save on each rank separately.

    Raises:
        SMPUsageError: If `callbacks` contains one.
    """
    backup = tf.keras.callbacks.BackupAndRestore
    listed = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
    if any(isinstance(callback, backup) for callback in listed):
        raise SMPUsageError(
            "fit(callbacks=[BackupAndRestore(...)]): every rank would save its own part under the same name; "
            "use smp.CheckpointManager, and a keras.callbacks.LambdaCallback(on_epoch_end=...) that calls its save"
        )


def report_own_step(model: KerasModel, name: str, own: object) -> None:
    """Log once that a script has replaced `train_step` or `test_step`, in which the library divides the losses.

    Args:
        name: Name of the method.
        own: The method of the library.
    """
    reported = _reported(model)
    if getattr(type(model), name) is own or name in reported:
        return
    reported.add(name)
    if current().placement.rank == 0:
        log.warning(
            "smp: %s.%s is the script's own: the losses and gradients that it computes are divided as it divides them "
            "(accumulate and reduce_mean return the mean over the microbatches), and with ddp averaged over replicas",
            type(model).__name__,
            name,
        )


def is_quiet() -> bool:
    """Return whether this rank prints no progress bar, because rank 0 does."""
    return current().placement.rank != 0


def _reported(model: KerasModel) -> set[str]:
    """Return what has been logged once of a model."""
    reported: set[str] = model.__dict__.setdefault("_smp_reported", set())
    return reported


def _first(x: object) -> Tensor:
    return next(part for part in tf.nest.flatten(x) if part is not None)


def _size(x: object) -> Tensor:
    return tf.shape(_first(x))[0]


def _whole(loss: StepOutput) -> Tensor:
    """Return the loss of the whole batch, as Keras logs it: one value per row if it has no reduction."""
    return loss.merge() if loss.outputs[0].shape.rank else loss.reduce_mean()


def _filled(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    size, pieces = tf.shape(tensor)[0], current().config.microbatches
    whole = size + tf.math.floormod(-size, pieces)
    return tf.gather(tensor, tf.minimum(tf.range(whole), size - 1))


def _merged(outputs: object) -> Any:
    return tf.nest.map_structure(operator.methodcaller("merge"), outputs)


def _notes(y_pred: object) -> list[dict[str, Any]]:
    return [notes_of(output) for output in tf.nest.flatten(y_pred)]


def _noted(y_pred: object, notes: list[dict[str, Any]]) -> object:
    """Return the predictions of the whole batch, with their Keras notes, for the metrics."""
    merged = [with_notes(*pair) for pair in zip(tf.nest.flatten(_merged(y_pred)), _merged(notes), strict=True)]
    return tf.nest.pack_sequence_as(y_pred, merged)
