"""Broadcasts of variables, which make them equal on all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import GraphOperation, Tensor, Variable
from horovod.tensorflow.collectives import CollectiveKind, run
from horovod.tensorflow.gathers import check_root
from horovod.tensorflow.process import communicator
from horovod.tensorflow.process_sets import ProcessSet, members_of


def broadcast_variables(
    variables: Iterable[Variable], root_rank: int, process_set: ProcessSet | None = None, inplace: bool = False
) -> GraphOperation | None:
    """Assign to all variables their values on `root_rank`.

    Variables that this process does not hold, such as those of other partitions under `smp`, are skipped.

    Args:
        variables: tf.Variables or Keras variables, in the same order on all ranks.
        root_rank: Rank whose values are sent.
        process_set: The ranks that take part. Default: all ranks.
        inplace: Without effect: in Horovod it saves a copy, and the values are the same.

    Returns:
        In a graph, the op that assigns the values; eagerly, None.

    Raises:
        ValueError: If `root_rank` does not exist, or `process_set` is not allowed.
    """
    del inplace
    assigned = _assign("broadcast_variables", variables, root_rank, process_set, None)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def broadcast_(
    variables: Iterable[Variable], root_rank: int, name: str | None = None, process_set: ProcessSet | None = None
) -> list[Tensor]:
    """Assign to all variables their values on `root_rank`, and return these values.

    Args:
        variables: tf.Variables or Keras variables, in the same order on all ranks.
        root_rank: Rank whose values are sent.
        name: Name of the op. Ranks match calls by it.
        process_set: The ranks that take part. Default: all ranks.

    Returns:
        A list of tensors: the values of the variables after the assignments. In a graph, running one of them assigns
        its variable.
    """
    assigned = _assign("broadcast_", variables, root_rank, process_set, name)
    return [tf.identity(variable) for variable in assigned]


def broadcast_global_variables(root_rank: int) -> GraphOperation | None:
    """Return the op that assigns to all global variables of a session's graph their values on `root_rank`.

    Args:
        root_rank: Rank whose values are sent.

    Returns:
        A `tf.Operation`.

    Raises:
        RuntimeError: If executed eagerly, which has no global variables.
    """
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables: eager execution has no global variables; call "
            "hvd.broadcast_variables(model.variables, root_rank) after the first step"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Assigns to all global variables their values on `root_rank` when a session of `tf.compat.v1` has been created.

    Args:
        root_rank: Rank whose values are sent.
        device: Without effect: tensors go through the memory of the host.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        del device
        check_root(root_rank)
        self._root_rank = root_rank
        self._broadcast: GraphOperation | None = None

    def begin(self) -> None:
        """Add the op to the graph."""
        if self._broadcast is None or self._broadcast.graph is not tf.compat.v1.get_default_graph():
            self._broadcast = broadcast_global_variables(self._root_rank)

    def after_create_session(self, session: tf.compat.v1.Session, coord: object) -> None:
        """Run the op.

        Args:
            session: The new session.
            coord: Without effect: its coordinator.
        """
        del coord
        session.run(self._broadcast)


def _assign(
    function: str, variables: Iterable[Variable], root_rank: int, process_set: ProcessSet | None, name: str | None
) -> list[Any]:
    ranks = members_of(function, process_set)
    check_root(root_rank, ranks)
    holds = getattr(communicator(), "holds", None)
    held = [tensorflow_variable(variable) for variable in variables if holds is None or holds(variable)]
    if not held:
        return []
    values = [tf.convert_to_tensor(variable) for variable in held]
    sent = run(
        CollectiveKind.BROADCAST, values, label=name or "horovod_broadcast_variables", ranks=ranks, root=root_rank
    )
    return [variable.assign(value) for variable, value in zip(held, sent)]


def tensorflow_variable(variable: Variable) -> Variable:
    """Return the `tf.Variable` that a variable of Keras 3 contains; other variables themselves.

    Args:
        variable: Of Keras 3, tf_keras or TensorFlow.
    """
    inner = getattr(variable, "value", None)
    return variable if isinstance(variable, tf.Variable) or not isinstance(inner, tf.Variable) else inner
