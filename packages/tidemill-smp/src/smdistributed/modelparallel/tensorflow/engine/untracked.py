"""Untracked variables: captured by a step that changes them, but kept by no layer as an attribute (global ones)."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, PartitionAssignment
from smdistributed.modelparallel.tensorflow.engine.invariance import written_handles
from smdistributed.modelparallel.tensorflow.engine.trace import Trace


def untracked_variables(traced: Trace, assignment: PartitionAssignment, known: Iterable[Any]) -> list[tf.Variable]:
    """Return the untracked variables that change on one rank: written in one partition, or trainable there.

    Variables that never change are equal on all ranks, and so are those that the step changes outside all partitions.

    Args:
        traced: The step.
        assignment: The partition of each op.
        known: The variables of the models, and untracked variables found before.
    """
    ids = {id(variable) for variable in known}
    # Captured handles that belong to a remote variable are placeholders, not variables of this step.
    handles = {id(variable.handle) for variable in known}
    written = written_handles(traced.nodes)
    found = []
    for output, external in traced.captures.items():
        if external.dtype != tf.resource or assignment.handles.get(output, ALL) == ALL or id(external) in handles:
            continue
        variable = _variable_of(external)
        if variable is not None and id(variable) not in ids and (variable.trainable or output in written):
            found.append(variable)
    return found


def _variable_of(handle: Tensor) -> tf.Variable | None:
    # TensorFlow records the variable on its handle.
    reference = getattr(handle, "_parent_trackable", None)
    owner = None if reference is None else reference()
    return owner if isinstance(owner, tf.Variable) else None
