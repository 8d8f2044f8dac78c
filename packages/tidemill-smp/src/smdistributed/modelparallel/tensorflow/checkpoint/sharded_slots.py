"""Writes sharded optimizer slots into the files of the first replica.

A rank of the first replica writes marks in place of the slots of other replicas. Then it rewrites its files and
requests the values one by one from the other replicas, so that only a piece of them is ever in its memory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPCheckpointError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Variable
from smdistributed.modelparallel.tensorflow.checkpoint.bundles import Bundle, BundleWriter
from smdistributed.modelparallel.tensorflow.checkpoint.children import objects_below
from smdistributed.modelparallel.tensorflow.keras_api import is_keras_variable
from smdistributed.modelparallel.tensorflow.optimizers.slots import replica_of
from smdistributed.modelparallel.tensorflow.session import RankSession
from smdistributed.modelparallel.tensorflow.variables import RemoteVariable, is_remote, owner_of, tensorflow_variable

_MARK = b"smp: a slot of replica "


class ShardedSlots:
    """Provides the values of remote slots on a rank of the first replica."""

    def __init__(self, session: RankSession, checkpoint: tf.train.Checkpoint) -> None:
        """Provide values for the objects of `checkpoint`. Create it inside `all_listed`."""
        self._session = session
        self._variables = _variables_below(checkpoint)
        self._numbers = {id(variable): number for number, variable in enumerate(self._variables)}
        self._num_marks = 0

    def value(self, variable: RemoteVariable) -> NoReturn:
        """Refuse: checkpoints are written from `tensors`."""
        variable._refuse("read")

    def tensors(self, variable: RemoteVariable) -> dict[str, Any]:
        """Return a mark for a slot of another replica, and nothing for a variable of another partition.

        Returns:
            Tensors by attribute; empty for another partition.
        """
        replica = replica_of(variable)
        if replica is None:
            return {}
        self._num_marks += 1
        mark = _MARK + f"{replica} {self._numbers[id(variable)]}".encode()
        return {"VARIABLE_VALUE": tf.constant(mark)}

    def fill(self, prefix: Path) -> None:
        """Rewrite the files that begin with `prefix`, with values in place of marks.

        Raises:
            SMPCheckpointError: If another replica has no such slot.
        """
        if not self._num_marks:
            return
        bundle = Bundle(prefix)
        writer = BundleWriter(prefix.parent / f".{prefix.name}.filling")
        for key, (dtype, shape) in bundle.forms.items():
            tensor = bundle.read(key)
            if dtype == tf.string and not shape and tensor.numpy().startswith(_MARK):
                replica, number = map(int, tensor.numpy()[len(_MARK) :].split())
                tensor = tf.convert_to_tensor(self._fetch(replica, number))
            writer.add(key, tensor)
        writer.close(prefix)

    def release(self) -> None:
        """End `serve` on the other replicas. Must also be called after a failure."""
        _, *others = self._session.dp_group.ranks
        self._session.objects.send(None, tuple(others), doing="end a checkpoint of shared slots")

    def _fetch(self, replica: int, number: int) -> np.ndarray:
        rank, variable = self._session.dp_group.ranks[replica], self._variables[number]
        doing = f"fetch {variable.name} from {self._session.world.name_of(rank)}"
        self._session.objects.send((number, _form(variable)), (rank,), doing=doing)
        value, failure = self._session.objects.receive(rank, doing=doing)
        if failure is not None:
            raise SMPCheckpointError(f"cannot {doing}: {failure}")
        return value


def serve(session: RankSession, checkpoint: tf.train.Checkpoint) -> None:
    """Answer the first replica until it has all slots. Other replicas call it, inside `all_listed`.

    Args:
        checkpoint: The same checkpoint as on the first replica.
    """
    writer, doing = session.dp_group.ranks[0], "give slots to a checkpoint"
    variables: list[Variable] = []
    while (asked := session.objects.receive(writer, doing=doing)) is not None:
        try:
            variables = variables or _variables_below(checkpoint)
            answer = _value(variables, *asked), None
        except Exception as error:  # noqa: BLE001 - it is raised on the rank that asks, and by that on all
            answer = None, f"{type(error).__name__}: {error}"
        session.objects.send(answer, (writer,), doing=doing)


def _value(variables: Sequence[Variable], number: int, form: tuple[str, list[int]]) -> np.ndarray:
    variable = variables[number] if number < len(variables) else None
    if variable is None or _form(variable) != form or is_remote(variable):
        raise SMPCheckpointError(
            f"this replica has {_described(variable)} in its place: create tf.train.Checkpoint(...) with the same "
            "objects on all ranks"
        )
    return variable.numpy()


def _variables_below(checkpoint: tf.train.Checkpoint) -> list[Any]:
    """Return all variables, each once, in an order that is the same on all replicas."""
    found: dict[int, Any] = {}
    for live in objects_below(checkpoint):
        inner = tensorflow_variable(live) if is_keras_variable(live) else live
        if isinstance(inner, tf.Variable):
            found.setdefault(id(inner), inner)
    return list(found.values())


def _form(variable: Variable) -> tuple[str, list[int]]:
    return variable.dtype.name, variable.shape.as_list()


def _described(variable: Variable | None) -> str:
    if variable is None:
        return "nothing"
    where = f", held by {owner_of(variable)}" if is_remote(variable) else ""
    return f"{variable.name} (shape {variable.shape}, {variable.dtype.name}{where})"
