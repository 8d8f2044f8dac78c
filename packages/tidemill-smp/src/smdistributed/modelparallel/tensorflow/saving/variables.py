"""Which variables a model has, and which of them are here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from smdistributed.modelparallel.tensorflow.engine.assign import ALL
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign, tensorflow_variable

__all__ = ["VariableSpec", "local_variables", "variable_specs"]


@dataclass(frozen=True)
class VariableSpec:
    """What every rank knows of a variable, whoever holds it."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    trainable: bool
    partition: int | None
    """Who holds it; None if every rank does, or the model is not cut yet."""


def local_variables(model: Any) -> list[Any]:
    """The variables of `model` that this rank holds, in the order of `model.variables`; they can be read and assigned.

    Args:
        model: A model, a layer or an optimizer.
    """
    listed = model.variables() if callable(model.variables) else model.variables  # Keras 2 and 3
    return [variable for variable in listed if not is_foreign(variable)]


def variable_specs(model: Any) -> list[VariableSpec]:
    """What variables the whole model has, in the order of `model.variables`."""
    owners = engine().owners
    return [_spec(variable, owners.get(id(tensorflow_variable(variable)), ALL)) for variable in model.variables]


def _spec(variable: Any, owner: int) -> VariableSpec:
    inner = tensorflow_variable(variable)
    return VariableSpec(
        name=getattr(variable, "path", inner.name),
        shape=tuple(inner.shape.as_list()),
        dtype=inner.dtype.name,
        trainable=bool(variable.trainable),
        partition=None if owner == ALL else owner,
    )
