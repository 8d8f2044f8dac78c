"""Lists the variables of a model, and those that this rank holds."""

from dataclasses import dataclass
from typing import Any

from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasModel, Variable
from smdistributed.modelparallel.tensorflow.engine.assign import ALL
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.variables import is_remote, tensorflow_variable


@dataclass(frozen=True)
class VariableSpec:
    """Description of a variable, available on every rank, whichever rank holds the variable.

    Attributes:
        name: The variable's path in Keras 3, its name in tf_keras.
        shape: None for a dimension without a size.
        dtype: For example ``float32``.
        trainable: Whether the variable is one of `model.trainable_variables`.
        partition: The partition that holds the variable; None if every rank does, or if the model is not partitioned
            yet.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    trainable: bool
    partition: int | None


def local_variables(model: KerasModel) -> list[Any]:
    """Return the variables of `model` that this rank holds, and can read and assign, in the order of `model.variables`.

    Args:
        model: A model, a layer or an optimizer.

    Returns:
        Variables of Keras or TensorFlow; none of them belongs to another rank.
    """
    listed = model.variables() if callable(model.variables) else model.variables  # Keras 2 and 3
    return [variable for variable in listed if not is_remote(variable)]


def variable_specs(model: KerasModel) -> list[VariableSpec]:
    """Return a spec for each variable of the whole model, in the order of `model.variables`.

    Args:
        model: A distributed model.
    """
    owners = engine().owners
    return [_spec(variable, owners.get(id(tensorflow_variable(variable)), ALL)) for variable in model.variables]


def _spec(variable: Variable, owner: int) -> VariableSpec:
    inner = tensorflow_variable(variable)
    return VariableSpec(
        name=getattr(variable, "path", inner.name),
        shape=tuple(inner.shape.as_list()),
        dtype=inner.dtype.name,
        trainable=bool(variable.trainable),
        partition=None if owner == ALL else owner,
    )
