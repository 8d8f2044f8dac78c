"""`keras.optimizers.legacy`: the current optimizers with the arguments of the legacy ones."""

import inspect
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from smdistributed.modelparallel.tensorflow.patch import Patch

NAMES = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


class LegacyArguments:
    """Mixin with the arguments that legacy optimizers have in addition to current ones.

    `lr` is an alias of `learning_rate`. `decay` divides the learning rate by 1 + decay * iterations, which is now the
    schedule `InverseTimeDecay(learning_rate, decay_steps=1, decay_rate=decay)`.
    """

    _keras: ModuleType

    def __init__(self, *args: object, lr: Any = None, decay: float | None = None, **kwargs: object) -> None:
        """Accept the current arguments, `lr` and `decay`."""
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


def patches(keras: ModuleType, namespaces: Sequence[Any]) -> list[Patch]:
    """Return the patches for Keras 3, whose legacy classes raise when called.

    Args:
        namespaces: Modules with ``optimizers.legacy``.
    """
    classes = {name: _legacy(keras, getattr(keras.optimizers, name)) for name in NAMES}
    # For isinstance: every current optimizer counts as a legacy one.
    classes["Optimizer"] = keras.optimizers.Optimizer
    return [Patch(space.optimizers.legacy, name, new) for space in namespaces for name, new in classes.items()]


def _legacy(keras: ModuleType, modern: type) -> type:
    # Use the module of the current class, so that saved models can be loaded with and without smp.
    body = {"__doc__": modern.__doc__, "__module__": modern.__module__, "_keras": keras}
    return type(modern.__name__, (LegacyArguments, modern), body)
