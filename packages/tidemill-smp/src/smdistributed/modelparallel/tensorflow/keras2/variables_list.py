"""`optimizer.variables()`, while `optimizer.variables` stays the list that Keras 3 makes of it."""

from __future__ import annotations

from typing import Any

from smdistributed.modelparallel.tensorflow.keras2.patch import Patch

__all__ = ["CallableList", "patches"]


class CallableList(list):  # type: ignore[type-arg]
    """A list that gives itself when it is called."""

    def __call__(self) -> CallableList:
        """Give the list."""
        return self


def patches(keras: Any) -> list[Patch]:
    """The patches for Keras 3: for every class of optimizers with a `variables` of its own."""
    found: dict[type, None] = {}
    for exported in vars(keras.optimizers).values():
        if isinstance(exported, type) and issubclass(exported, keras.optimizers.Optimizer):
            found.update(dict.fromkeys(owner for owner in exported.__mro__ if "variables" in vars(owner)))
    return [Patch(owner, "variables", _callable(vars(owner)["variables"])) for owner in found]


def _callable(original: property) -> property:
    getter = original.fget
    assert getter is not None
    return property(lambda self: CallableList(getter(self)), doc=original.__doc__)
