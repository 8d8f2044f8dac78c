"""Optimizer slots, which are created when the optimizer is first applied, and their place in the object graph.

| optimizers | create slots in | a slot in the object graph is |
|---|---|---|
| Keras 3, and current ones of Keras 2 | `build`, once | a child of the optimizer |
| legacy ones of Keras 2 | `_create_all_weights`, repeatedly | identified by optimizer, variable and name |
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Optimizer, Variable
from smdistributed.modelparallel.tensorflow.keras_api import IS_KERAS_2


def awaits_slots(live: object) -> bool:
    """Return whether `live` is an optimizer that may still create slots.

    Args:
        live: Any object of a checkpoint.
    """
    if _is_legacy(live):
        return True
    return isinstance(live, tf.keras.optimizers.Optimizer) and not getattr(live, "_built" if IS_KERAS_2 else "built", 0)


def prepare(live: Any) -> None:
    """Create the variables other than slots that an optimizer creates when first applied: counter, hyperparameters.

    Args:
        live: An optimizer; others are ignored.
    """
    if _is_legacy(live):
        live.iterations  # noqa: B018 - made by being asked for
        live._create_hypers()


def after_build(optimizer: Any, then: Callable[[Sequence[Any]], None]) -> None:
    """Call `then` with the trained variables, once the optimizer has created slots for them.

    Args:
        optimizer: An optimizer that is not built.
        then: Gets the trained variables, once.
    """
    name = "_create_all_weights" if _is_legacy(optimizer) else "build"
    make = getattr(optimizer, name)

    def make_and_restore(var_list: Iterable[Variable], *args: object, **kwargs: object) -> None:
        variables = list(var_list)
        if not _is_legacy(optimizer):
            optimizer.__dict__.pop(name, None)
        before = _num_variables(optimizer)
        make(variables, *args, **kwargs)
        if _num_variables(optimizer) > before:
            then(variables)

    optimizer.__dict__[name] = make_and_restore


def slot_of(optimizer: Any, variable: Variable | None, name: str) -> Variable | None:
    """Return the slot of that name of a legacy optimizer; None if it does not exist.

    Args:
        optimizer: A legacy optimizer of tf_keras.
        name: For example ``m``.
    """
    try:
        return optimizer.get_slot(variable, name)
    except (AttributeError, KeyError):
        return None


def slots_among(objects: Iterable[Any]) -> Iterator[Any]:
    """Yield the slots of legacy optimizers for variables, both among `objects`.

    Args:
        objects: Objects of a checkpoint.
    """
    known = list(objects)
    for optimizer in [live for live in known if _is_legacy(live)]:
        for name in optimizer.get_slot_names():
            slots = (slot_of(optimizer, live, name) for live in known if isinstance(live, tf.Variable))
            yield from (slot for slot in slots if slot is not None)


def _is_legacy(live: object) -> bool:
    return IS_KERAS_2 and isinstance(live, tf.keras.optimizers.legacy.Optimizer)


def _num_variables(optimizer: Optimizer) -> int:
    return len(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)
