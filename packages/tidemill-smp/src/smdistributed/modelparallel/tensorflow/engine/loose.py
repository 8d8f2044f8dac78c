"""Variables that no layer keeps as an attribute, such as global ones, and that a step changes all the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.engine.assign import ALL, Assignment
from smdistributed.modelparallel.tensorflow.engine.invariance import written_handles
from smdistributed.modelparallel.tensorflow.engine.trace import Trace

__all__ = ["loose_variables"]


def loose_variables(traced: Trace, assignment: Assignment, known: Iterable[Any]) -> list[tf.Variable]:
    """Those that change on one rank: the step writes to them in one partition, or an optimizer will.

    What no one changes is equal on all ranks, and what the step changes outside all partitions changes on all.

    Args:
        traced: The step.
        assignment: Who computes what of it.
        known: The variables of the models, and loose ones that are known already.
    """
    ids = {id(variable) for variable in known}
    # The handle of a variable of another rank is on loan: whose it was is no variable of the step.
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


def _variable_of(handle: Any) -> tf.Variable | None:
    # TensorFlow notes on the handle whose it is.
    reference = getattr(handle, "_parent_trackable", None)
    owner = None if reference is None else reference()
    return owner if isinstance(owner, tf.Variable) else None
