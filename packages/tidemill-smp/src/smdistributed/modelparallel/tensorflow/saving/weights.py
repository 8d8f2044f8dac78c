"""`model.get_weights()` and `set_weights()`: what this rank holds, and markers in the place of the rest.

They are enough to put weights back later, as `EarlyStopping(restore_best_weights=True)` does. A marker is no value:
whatever wants one of it raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from smdistributed.modelparallel.backend.exceptions import SMPForeignVariableError, SMPUsageError
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.engine.variables import is_foreign, tensorflow_variable
from smdistributed.modelparallel.tensorflow.session import is_initialized

__all__ = ["HeldElsewhere", "get_weights", "set_weights"]


class HeldElsewhere:
    """In a list of weights, the place of one that another rank holds."""

    def __init__(self, variable: Any) -> None:
        """Stand for a tf.Variable of another rank."""
        self.name: str = variable.name
        self.shape: tuple[int, ...] = tuple(variable.shape)
        self._owner: str = variable._smp_owner

    def __array__(self, *_: Any, **__: Any) -> Any:
        self._refuse()

    def __reduce__(self) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: Any) -> HeldElsewhere:
        return self

    def __repr__(self) -> str:
        return f"<weight {self.name} shape={self.shape}, held by {self._owner}>"

    def _refuse(self) -> NoReturn:
        raise SMPForeignVariableError(
            f"cannot read the weight {self.name} (shape {self.shape}) here: it is held by {self._owner}. "
            "model.get_weights() has the values that this rank holds; save with smp.CheckpointManager or "
            "model.save_weights, which collect from all ranks"
        )


def get_weights(variables: Sequence[Any]) -> list[Any]:
    """The values of variables, as arrays; of those of other ranks a `HeldElsewhere`.

    Raises:
        SMPUsageError: If variables have no values before the first step.
    """
    lacking = engine().what_lacks_values(variables) if is_initialized() else ""
    if lacking:
        raise SMPUsageError(f"cannot get the weights: {lacking}")
    return [
        HeldElsewhere(tensorflow_variable(variable)) if is_foreign(variable) else np.array(variable)
        for variable in variables
    ]


def set_weights(variables: Sequence[Any], weights: Sequence[Any]) -> None:
    """Give variables the values that `get_weights` gave; what is of other ranks stays as it is.

    Raises:
        SMPUsageError: If the weights do not fit, or were taken where another cut was.
        SMPForeignVariableError: If there is a value for a variable of another rank.
    """
    if len(weights) != len(variables):
        raise SMPUsageError(f"set_weights got {len(weights)} weights; the model has {len(variables)}")
    for place, (variable, weight) in enumerate(zip(variables, weights, strict=True)):
        if tuple(np.shape(weight) if not isinstance(weight, HeldElsewhere) else weight.shape) != tuple(variable.shape):
            raise SMPUsageError(
                f"set_weights got a weight of shape {tuple(weight.shape)} at place {place}; {variable.name} has shape "
                f"{tuple(variable.shape)}"
            )
        if isinstance(weight, HeldElsewhere) and not is_foreign(variable):
            raise SMPUsageError(
                f"set_weights got {weight!r} for {variable.name}, which this rank holds: weights that get_weights gave "
                "fit the model that they are of"
            )
    for variable, weight in zip(variables, weights, strict=True):
        if not isinstance(weight, HeldElsewhere):
            variable.assign(weight)
