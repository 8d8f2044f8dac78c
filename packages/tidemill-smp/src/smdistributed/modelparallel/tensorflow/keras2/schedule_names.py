"""Learning rate schedules with `name=None`, which the schedules of Keras 3 choke on at their first call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smdistributed.modelparallel.tensorflow.keras2.patch import Patch

__all__ = ["patches"]


def patches(keras: Any) -> list[Patch]:
    """The patches for Keras 3."""
    base = keras.optimizers.schedules.LearningRateSchedule
    classes = [c for c in vars(keras.optimizers.schedules).values() if isinstance(c, type) and issubclass(c, base)]
    return [Patch(c, "__init__", _named(c, vars(c)["__init__"])) for c in classes if "__init__" in vars(c)]


def _named(schedule: type, init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def init_with_name(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if getattr(self, "name", schedule.__name__) is None:
            self.name = schedule.__name__

    return init_with_name
