"""Calls of Keras 2 that Keras 3 lacks.

- `metric.reset_states()`, now `reset_state()`;
- `optimizer.variables()`, while `optimizer.variables` remains a list as in Keras 3;
- learning rate schedules with `name=None`, which fail in Keras 3 when they are first called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasMetric
from smdistributed.modelparallel.tensorflow.patch import Patch


class CallableList(list):  # type: ignore[type-arg]
    """A list that returns itself when it is called."""

    def __call__(self) -> CallableList:
        """Return the list."""
        return self


def patches(keras: ModuleType) -> list[Patch]:
    """Return the patches for Keras 3."""
    reset_states = Patch(keras.metrics.Metric, "reset_states", _reset_states)
    return [reset_states, *_patches_of_optimizers(keras), *_patches_of_schedules(keras)]


def _reset_states(self: KerasMetric) -> None:
    """Reset the metric, under the method's name in Keras 2."""
    self.reset_state()


def _patches_of_optimizers(keras: ModuleType) -> list[Patch]:
    """Return the patches for every optimizer class that defines `variables`."""
    found: dict[type, None] = {}
    for exported in vars(keras.optimizers).values():
        if isinstance(exported, type) and issubclass(exported, keras.optimizers.Optimizer):
            found.update(dict.fromkeys(owner for owner in exported.__mro__ if "variables" in vars(owner)))
    return [Patch(owner, "variables", _callable(vars(owner)["variables"])) for owner in found]


def _callable(original: property) -> property:
    getter = original.fget
    assert getter is not None
    return property(lambda self: CallableList(getter(self)), doc=original.__doc__)


def _patches_of_schedules(keras: ModuleType) -> list[Patch]:
    base = keras.optimizers.schedules.LearningRateSchedule
    classes = [c for c in vars(keras.optimizers.schedules).values() if isinstance(c, type) and issubclass(c, base)]
    return [Patch(c, "__init__", _named(c, vars(c)["__init__"])) for c in classes if "__init__" in vars(c)]


def _named(schedule: type, init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_with_name(self: Any, *args: object, **kwargs: object) -> None:
        init(self, *args, **kwargs)
        if getattr(self, "name", schedule.__name__) is None:
            self.name = schedule.__name__

    return init_with_name
