"""`keras.optimizers.legacy`: today's optimizers, with the arguments of the old ones."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from smdistributed.modelparallel.tensorflow.keras2.patch import Patch

__all__ = ["LegacyArguments", "patches"]

NAMES = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


class LegacyArguments:
    """What the optimizers of the legacy namespace have beyond those they are made of.

    `lr` is another name of `learning_rate`. `decay` divides the learning rate by 1 + decay * iterations, as it always
    did; today that is a schedule, `InverseTimeDecay(learning_rate, decay_steps=1, decay_rate=decay)`.
    """

    _keras: Any

    def __init__(self, *args: Any, lr: Any = None, decay: float | None = None, **kwargs: Any) -> None:
        """Take today's arguments, and `lr` and `decay`."""
        if lr is not None:
            if args or "learning_rate" in kwargs:
                raise TypeError(f"{type(self).__name__}: lr is another name of learning_rate: give one, not both")
            kwargs["learning_rate"] = lr
        bound = inspect.signature(super().__init__).bind_partial(*args, **kwargs)
        if decay:
            bound.apply_defaults()
            bound.arguments["learning_rate"] = self._decaying(bound.arguments["learning_rate"], float(decay))
        super().__init__(*bound.args, **bound.kwargs)

    def _decaying(self, rate: Any, decay: float) -> Any:
        schedules = self._keras.optimizers.schedules
        if callable(rate):
            raise ValueError(
                f"{type(self).__name__}: decay={decay} divides a constant learning rate, but learning_rate is a "
                "schedule already: put the decay into the schedule"
            )
        return schedules.InverseTimeDecay(float(rate), decay_steps=1, decay_rate=decay)

    @property
    def lr(self) -> Any:
        """The learning rate."""
        return self.learning_rate  # type: ignore[attr-defined]

    @lr.setter
    def lr(self, value: Any) -> None:
        self.learning_rate = value


def patches(keras: Any, namespaces: Sequence[Any]) -> list[Patch]:
    """The patches for Keras 3, where the legacy classes raise when they are called."""
    classes = {name: _legacy(keras, getattr(keras.optimizers, name)) for name in NAMES}
    # For isinstance: every optimizer of today may stand where a legacy one was expected.
    classes["Optimizer"] = keras.optimizers.Optimizer
    return [Patch(space.optimizers.legacy, name, new) for space in namespaces for name, new in classes.items()]


def _legacy(keras: Any, modern: type) -> type:
    # The module is that of the class of today, so that a saved model finds this one again, with smp or without.
    body = {"__doc__": modern.__doc__, "__module__": modern.__module__, "_keras": keras}
    return type(modern.__name__, (LegacyArguments, modern), body)
