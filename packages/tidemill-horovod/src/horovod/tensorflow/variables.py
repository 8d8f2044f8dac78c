"""Equal variables on all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.tensorflow.arguments import refuse
from horovod.tensorflow.process import communicator
from horovod.tensorflow.reductions import broadcast, check_root

__all__ = ["broadcast_variables"]


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: Any = None, inplace: bool = False
) -> Any:
    """Give all variables the values that they have on `root_rank`.

    Variables that this process does not hold, as those of other partitions under `smp`, are passed over.

    Args:
        variables: tf.Variables or Keras variables, in the same order on all ranks.
        root_rank: Whose values.
        process_set: Refused: the group of `init` is the only one.
        inplace: Without effect: it saves a copy in Horovod, and the values are the same.

    Returns:
        In a graph, the op that does it; eagerly, None.

    Raises:
        ValueError: If `process_set` is given, or `root_rank` does not exist.
    """
    del inplace
    refuse("broadcast_variables", process_set=process_set)
    check_root(root_rank)
    group = communicator()
    holds = getattr(group, "holds", None)
    assigned = [
        _tensorflow_variable(variable).assign(broadcast(variable, root_rank))
        for variable in variables
        if holds is None or holds(variable)
    ]
    return None if tf.executing_eagerly() else tf.group(*assigned)


def _tensorflow_variable(variable: Any) -> Any:
    # A Keras 3 variable is none of TensorFlow's, it holds one.
    inner = getattr(variable, "value", None)
    return variable if isinstance(variable, tf.Variable) or not isinstance(inner, tf.Variable) else inner
