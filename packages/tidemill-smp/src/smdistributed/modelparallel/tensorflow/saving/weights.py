"""`model.get_weights()` and `set_weights()`: the weights that this rank holds, and markers for the others.

That suffices to restore weights later, as `EarlyStopping(restore_best_weights=True)` does. Using a marker as a value
raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from smdistributed.modelparallel.backend.exceptions import SMPRemoteVariableError, SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Variable
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.session import is_initialized
from smdistributed.modelparallel.tensorflow.variables import RemoteVariable, is_remote, tensorflow_variable


class RemoteWeight:
    """Marker in a list of weights for a weight that another rank holds."""

    def __init__(self, variable: RemoteVariable) -> None:
        """Create the marker of a remote tf.Variable."""
        self.name: str = variable.name
        self.shape: tuple[int, ...] = tuple(variable.shape)
        self._owner: str = variable._smp_owner

    def __array__(self, *_: object, **__: object) -> NoReturn:
        self._refuse()

    def __reduce__(self) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: object) -> RemoteWeight:
        return self

    def __repr__(self) -> str:
        return f"<weight {self.name} shape={self.shape}, held by {self._owner}>"

    def _refuse(self) -> NoReturn:
        raise SMPRemoteVariableError(
            f"cannot read the weight {self.name} (shape {self.shape}) here: it is held by {self._owner}. "
            "model.get_weights() has the values that this rank holds; save with smp.CheckpointManager or "
            "model.save_weights, which collect from all ranks"
        )


def get_weights(variables: Sequence[Variable]) -> list[Any]:
    """Return the values of variables as arrays, and a `RemoteWeight` for each variable of another rank.

    Raises:
        SMPUsageError: If variables have no values before the first step.
    """
    lacking = engine().what_lacks_values(variables) if is_initialized() else ""
    if lacking:
        raise SMPUsageError(f"cannot get the weights: {lacking}")
    return [
        RemoteWeight(tensorflow_variable(variable)) if is_remote(variable) else np.array(variable)
        for variable in variables
    ]


def set_weights(variables: Sequence[Variable], weights: Sequence[Any]) -> None:
    """Assign the values that `get_weights` returned; variables of other ranks are skipped.

    Raises:
        SMPUsageError: If numbers or shapes do not match, or the weights come from another partitioning.
        SMPRemoteVariableError: If there is a value for a variable of another rank.
    """
    if len(weights) != len(variables):
        raise SMPUsageError(f"set_weights got {len(weights)} weights; the model has {len(variables)}")
    for place, (variable, weight) in enumerate(zip(variables, weights, strict=True)):
        if tuple(np.shape(weight) if not isinstance(weight, RemoteWeight) else weight.shape) != tuple(variable.shape):
            raise SMPUsageError(
                f"set_weights got a weight of shape {tuple(weight.shape)} at place {place}; {variable.name} has shape "
                f"{tuple(variable.shape)}"
            )
        if isinstance(weight, RemoteWeight) and not is_remote(variable):
            raise SMPUsageError(
                f"set_weights got {weight!r} for {variable.name}, which this rank holds: pass weights that get_weights "
                "returned for the same model on the same rank"
            )
    for variable, weight in zip(variables, weights, strict=True):
        if not isinstance(weight, RemoteWeight):
            variable.assign(weight)
