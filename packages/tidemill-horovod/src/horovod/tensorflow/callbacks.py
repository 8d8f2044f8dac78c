"""Callbacks for `Model.fit`, for the callbacks of any Keras: Keras 3 or tf_keras."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import KerasModel, Logs, Variable
from horovod.tensorflow.gathers import check_root
from horovod.tensorflow.objects import values_of
from horovod.tensorflow.process import rank, size
from horovod.tensorflow.reductions import allreduce
from horovod.tensorflow.variables import broadcast_variables, tensorflow_variable


def callbacks_of(keras: ModuleType) -> tuple[type, ...]:
    """Return the callback classes below, in their order by name, as callbacks of a Keras.

    Args:
        keras: The module: `keras`, `tf_keras` or `tf.keras`.
    """
    plain, saving = keras.callbacks.Callback, keras.callbacks.ModelCheckpoint
    schedule = _bound(LearningRateScheduleCallback, plain, keras)
    return (
        _bound(BestModelCheckpoint, saving, keras),
        _bound(BroadcastGlobalVariablesCallback, plain, keras),
        schedule,
        _bound(LearningRateWarmupCallback, schedule, keras),
        _bound(MetricAverageCallback, plain, keras),
    )


def _bound(kind: type, base: type, keras: ModuleType) -> type:
    members = {"__doc__": kind.__doc__, "__module__": kind.__module__, "_keras": keras}
    return type(kind.__name__, (kind, base), members)


class _Callback:
    """The attributes of Keras's `Callback` that the classes below use; `callbacks_of` adds the Keras."""

    model: KerasModel
    params: dict[str, Any] | None
    _keras: Any

    def _backend(self) -> Any:
        """Return the backend of a Keras whose model is a graph of TensorFlow 1; None if it executes eagerly."""
        if tf.executing_eagerly():
            return None
        backend = self._keras.backend
        return backend if hasattr(backend, "get_session") else tf.compat.v1.keras.backend


def _is_number(value: object) -> bool:
    array = np.asarray(value)
    return array.ndim == 0 and array.dtype.kind in "biuf"


class BroadcastGlobalVariablesCallback(_Callback):
    """Broadcasts the variables of one rank after the first batch, when optimizers have created theirs.

    Args:
        root_rank: Rank whose values all ranks get.
        device: Without effect: tensors go through the memory of the host.
        local_variables: Variables that are not broadcast, because they differ between ranks.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Iterable[Variable] | None = None) -> None:
        super().__init__()
        del device
        self.root_rank = root_rank
        self.broadcast_done = False
        self._local: dict[int, Variable] = {}
        for variable in local_variables or ():
            self.register_local_var(variable)

    def register_local_var(self, var: Variable) -> None:
        """Do not broadcast a variable."""
        kept = tensorflow_variable(var)
        self._local[id(kept)] = kept

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Broadcast once."""
        del batch, logs
        if self.broadcast_done:
            return
        check_root(self.root_rank)
        backend = self._backend()
        if backend is not None:
            backend.get_session().run(
                broadcast_variables(self._shared(tf.compat.v1.global_variables()), self.root_rank)
            )
            self.broadcast_done = True
            return
        broadcast_variables(self._shared(self.model.variables), self.root_rank)
        variables = getattr(self.model.optimizer, "variables", [])
        broadcast_variables(self._shared(variables() if callable(variables) else variables), self.root_rank)
        self.broadcast_done = True

    def _shared(self, variables: Iterable[Variable]) -> list[Variable]:
        return [one for one in variables if id(tensorflow_variable(one)) not in self._local]


class MetricAverageCallback(_Callback):
    """Averages the metrics of an epoch over all ranks, before later callbacks see them.

    Args:
        device: Without effect: tensors go through the memory of the host.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        del device

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Average in place."""
        del epoch
        if not logs or size() == 1:
            return
        names = sorted(name for name, value in logs.items() if _is_number(value))
        values = [float(logs[name]) for name in names]
        (means,) = values_of(lambda: [allreduce(tf.constant(values, tf.float64), name="horovod_metrics")])
        logs.update(zip(names, means.tolist()))


class LearningRateScheduleCallback(_Callback):
    """Multiplies the initial learning rate, by epoch.

    Args:
        initial_lr: Learning rate at the multiplier 1.
        multiplier: A number, or a function of the epoch that returns one.
        start_epoch: The first epoch in which the multiplier applies.
        end_epoch: The first epoch in which the multiplier no longer applies; None for no end.
        staircase: Whether `multiplier` is called with whole epochs only; False also passes fractions of epochs.
        momentum_correction: Whether to scale the momentum with the learning rate for the batch of the change.
        steps_per_epoch: Batches of an epoch, for fractions. Default: the number that `fit` reports.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: float | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if not initial_lr > 0:
            raise ValueError(f"{type(self).__name__}: initial_lr is {initial_lr!r}; allowed is a number > 0")
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda epoch: multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase if callable(multiplier) else True
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.restore_momentum: float | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Determine the number of batches in an epoch."""
        del logs
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__}: steps_per_epoch is None, and fit does not know it; give the number of "
                    "batches in an epoch"
                )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Remember the number of the epoch."""
        del logs
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        """Set the learning rate."""
        del logs
        if self.current_epoch < self.start_epoch or (
            self.end_epoch is not None and self.current_epoch >= self.end_epoch
        ):
            return
        if self.staircase:
            if batch == 0:
                self._set(self.current_epoch)
        else:
            self._set(self.current_epoch + batch / (self.steps_per_epoch or 1))

    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Restore the momentum after the batch of the change."""
        del batch, logs
        if self.restore_momentum is not None:
            self._write("momentum", self.restore_momentum)
            self.restore_momentum = None

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Add the learning rate to the metrics."""
        del epoch
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return self._read(self._rate_name())

    def _rate_name(self) -> str:
        return "learning_rate" if hasattr(self.model.optimizer, "learning_rate") else "lr"

    def _read(self, name: str) -> float:
        value, backend = getattr(self.model.optimizer, name), self._backend()
        return float(np.asarray(value) if backend is None or not hasattr(value, "assign") else backend.get_value(value))

    def _write(self, name: str, value: float) -> None:
        optimizer, backend = self.model.optimizer, self._backend()
        if backend is None or not hasattr(getattr(optimizer, name), "assign"):
            setattr(optimizer, name, value)
        else:
            backend.set_value(getattr(optimizer, name), value)

    def _set(self, epoch: float) -> None:
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        self._write(self._rate_name(), new)
        if not self.momentum_correction or not old > 0 or not hasattr(self.model.optimizer, "momentum"):
            return
        # Older optimizers of Keras 2 have a variable. A compiled step of others has the number as a constant, so a new
        # value would have no effect.
        is_variable = hasattr(self.model.optimizer.momentum, "assign")
        if not is_variable and not getattr(self.model, "run_eagerly", False):
            return
        momentum = self._read("momentum")
        if momentum:
            self.restore_momentum = momentum
            self._write("momentum", momentum * new / old)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size()` to `initial_lr` during the first epochs.

    Args:
        initial_lr: Learning rate after the warm-up: the learning rate of one rank times the number of ranks.
        warmup_epochs: Length of the warm-up, in epochs.
        momentum_correction: As for `LearningRateScheduleCallback`.
        steps_per_epoch: Batches of an epoch. Default: the number that `fit` reports.
        verbose: 1 prints a line at the end of the warm-up.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # One batch more, so that the last batch of the warm-up reaches 1.
            done = min(1.0, (epoch + 1.0 / (self.steps_per_epoch or 1)) / warmup_epochs) if warmup_epochs else 1.0
            return (1 + done * (size() - 1)) / size()

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Print the learning rate when the warm-up is over."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and self.end_epoch is not None and epoch == int(np.ceil(self.end_epoch)) - 1 and rank() == 0:
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {self._rate():g}.")  # noqa: T201


class BestModelCheckpoint(_Callback):
    """`ModelCheckpoint` that keeps the best model, and writes on rank 0 only.

    Args:
        filepath: The file to write.
        monitor: The metric; average it first, with `MetricAverageCallback`.
        verbose: As for `ModelCheckpoint`.
        mode: As for `ModelCheckpoint`.
        save_freq: As for `ModelCheckpoint`.
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str] | None = None,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: int | str = "epoch",
    ) -> None:
        if filepath is None:
            raise ValueError("BestModelCheckpoint: filepath is None; give the path of the model file")
        # The package keras before 2.4 has no save_freq: it saves after each epoch.
        frequency: dict[str, Any] = {} if save_freq == "epoch" else {"save_freq": save_freq}
        super_init: Callable[..., None] = super().__init__  # of Keras's ModelCheckpoint
        super_init(filepath=filepath, monitor=monitor, verbose=verbose, save_best_only=True, mode=mode, **frequency)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Save on rank 0; the package keras before 2.4 saves here, without `_save_model`."""
        parent: Any = super()
        if rank() == 0 or hasattr(parent, "_save_model"):
            parent.on_epoch_end(epoch, logs)

    def _save_model(self, *args: object, **kwargs: object) -> None:
        if rank() == 0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Keras, about the format of the file
                super()._save_model(*args, **kwargs)  # type: ignore[misc]
