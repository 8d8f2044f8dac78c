"""Gathers the values of all variables on one rank, one at a time on request.

The ranks of one replica have all of them, except slots of optimizers that the replicas shard.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPError, SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, Variable
from smdistributed.modelparallel.tensorflow.engine.engine import engine
from smdistributed.modelparallel.tensorflow.optimizers.slots import is_sharding
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.variables import (
    RemoteVariable,
    is_remote,
    reading_remote,
    tensorflow_variable,
)


class Values:
    """Provides the values of remote variables on the gathering rank."""

    def __init__(self, session: RankSession, variables: Sequence[Variable], holders: Sequence[int]) -> None:
        """Fetch variables from `holders`, which contains a global rank per variable."""
        self._objects = session.objects
        self._variables = variables
        self._holders = holders
        self._numbers = {id(variable): number for number, variable in enumerate(variables)}

    def value(self, variable: RemoteVariable) -> Tensor:
        """Return the value from the rank that holds the variable.

        Returns:
            A tensor of the variable's shape and dtype.
        """
        return tf.convert_to_tensor(self.fetch(self.number(variable)))

    def tensors(self, variable: RemoteVariable) -> dict[str, Any]:
        """Return the tensors to write to a checkpoint.

        Returns:
            Tensors by attribute.
        """
        return {"VARIABLE_VALUE": self.value(variable)}

    def number(self, variable: RemoteVariable) -> int:
        """Return the index of a variable among all variables.

        Raises:
            SMPRemoteVariableError: If the variable does not belong to the model.
        """
        if id(variable) not in self._numbers:
            variable._refuse("save")
        return self._numbers[id(variable)]

    def fetch(self, number: int) -> np.ndarray:
        """Return the value of the variable of that index, as an array.

        Returns:
            A NumPy array.
        """
        holder = self._holders[number]
        doing = f"fetch {self._variables[number].name} from rank {holder}"
        self._objects.send(number, (holder,), doing=doing)
        return self._objects.receive(holder, doing=doing)


def on_first_rank(
    session: RankSession,
    variables: Sequence[Variable],
    work: Callable[[Values], Any],
    *,
    doing: str,
    error: type[SMPError],
) -> None:
    """Call `work` on the first rank of the first replica, while the others send it the values it requests. Collective.

    Args:
        variables: All variables that `work` may request, the same on all ranks.
        work: Called with the `Values`, which provide the values of remote variables meanwhile.
        doing: Description of the work, for error messages.
        error: Class of the exception raised on all ranks if the work fails.

    Raises:
        SMPUsageError: If variables have no values before the first step.
    """
    failure = None
    inner = [tensorflow_variable(variable) for variable in variables]
    for lacking in session.world_group.allgather_objects(engine().what_lacks_values(inner), what="save a whole model"):
        if lacking:
            raise SMPUsageError(f"could not {doing}: {lacking}")
    group = session.world_group if is_sharding(session) else session.mp_group
    if group is session.world_group or session.placement.dp_rank == 0:
        held = [not is_remote(variable) for variable in inner]
        holding = dict(zip(group.ranks, group.allgather_objects(held, what="save a whole model"), strict=True))
        first = session.placement.rank_at(0, 0)
        if session.world.rank == first:
            failure = _failure_of(work, session, inner, holding, error)
            for peer in [rank for rank in holding if rank != first]:
                session.objects.send(None, (peer,), doing=doing)
        else:
            _serve(session, inner, first, doing)
    text = None if failure is None else f"{type(failure).__name__}: {str(failure).strip() or _traceback(failure)}"
    answers = session.world_group.allgather_objects(text, what="save a whole model")
    for rank, text in enumerate(answers):
        if text is not None:
            raise error(f"could not {doing} on rank {rank}: {text}") from failure


def _failure_of(
    work: Callable[[Values], Any],
    session: RankSession,
    variables: Sequence[Variable],
    holding: Mapping[int, Sequence[bool]],
    error: type[SMPError],
) -> Exception | None:
    """Call `work` on this rank, and return the exception that it raised."""
    try:
        if len({len(flags) for flags in holding.values()}) > 1:
            counts = [len(flags) for flags in holding.values()]
            raise error(f"the ranks have {counts} variables; they must have the same")
        values = Values(session, variables, _holders(holding, session.world.rank))
        with reading_remote(values):
            work(values)
    except Exception as failure:  # noqa: BLE001 - it is raised again on all ranks
        return failure
    return None


def _traceback(failure: Exception) -> str:
    return "".join(traceback.format_exception(failure))


def _serve(session: RankSession, variables: Sequence[Variable], asking: int, doing: str) -> None:
    while (number := session.objects.receive(asking, doing=f"wait for rank {asking}, to {doing}")) is not None:
        session.objects.send(variables[number].numpy(), (asking,), doing=f"send {variables[number].name}")


def _holders(holding: Mapping[int, Sequence[bool]], first: int) -> list[int]:
    """Return for each variable a rank that holds it, preferably `first`."""
    order = [first, *(rank for rank in holding if rank != first)]
    places = range(len(holding[first]))
    return [next((rank for rank in order if holding[rank][place]), first) for place in places]
