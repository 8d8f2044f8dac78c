"""Finds the values of a step's inputs while the step is traced, so that layers are measured on the script's own data.

A step is usually traced inside a `tf.function` of the script, where its inputs are symbolic. The values of the
function's arguments are known all the same (see `traced_calls`). An input
that follows from such arguments by stateless ops is computed. Others, such as an iterator's next element, have no value
before the step runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.engine.extract import WholeGraph
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.engine.traced_calls import calls_in_progress
from smdistributed.modelparallel.tensorflow.graph_names import MEASURED
from tensorflow.python.framework import importer, ops


def inputs_of(trace: Trace, leaves: Sequence[Tensor] | None, initial: Mapping[int, Any]) -> dict[Output, Any]:
    """Return the values of the placeholders of a trace as far as they are known, with copies of variables.

    Args:
        leaves: The tensors of a microbatch, by their place among the trace's inputs; None if they are not known.
        initial: id of the handle of a variable that has no value yet -> the variable's initial value.

    Returns:
        A tensor, or a new tf.Variable in place of a variable, for each placeholder with a known value.
    """
    found: dict[Output, Any] = {}
    if leaves is not None:
        found |= {output: leaves[place] for output, place in trace.inputs.items()}
    for output, external in trace.captures.items():
        if external.dtype == tf.resource:
            value = initial.get(id(external))
            value = _read(external) if value is None else value
            found |= {} if value is None else {output: tf.Variable(value, trainable=False)}
        else:
            values = values_of([external])
            found |= {} if values is None else {output: values[0]}
    # Sums over the whole batch only scale the gradients.
    return found | {total: tf.ones([], tf.float64) for _, total in trace.sums}


def _read(handle: Tensor) -> Tensor | None:
    """Return the value of a variable; None if the resource is not a variable, or a variable of another rank."""
    data = handle._handle_data if isinstance(handle, ops.EagerTensor) else None
    if data is None or len(data.shape_and_type) != 1:
        return None
    try:
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.as_dtype(data.shape_and_type[0].dtype))
    except tf.errors.OpError:
        return None


def values_of(tensors: Sequence[Tensor]) -> list[Any] | None:
    """Return the values of tensors; None if one depends on anything but arguments of the calls being traced.

    Nothing stateful runs: no iterator is asked for an element, and no random numbers are drawn.

    Args:
        tensors: Tensors of a graph under construction.

    Returns:
        Eager tensors in the same order.
    """
    with tf.init_scope():
        found = [_value(tensor, len(calls_in_progress())) for tensor in tensors]
    return None if any(value is None for value in found) else found


def _value(tensor: Tensor, depth: int) -> Tensor | None:
    """Compute a tensor of a graph that is being traced, by the innermost `depth` calls and those around them."""
    if isinstance(tensor, ops.EagerTensor):
        return None if tensor.dtype in (tf.resource, tf.variant) else tensor
    needed = _slice(tensor.op)
    if needed is None:
        return None
    outer = {internal.name: external for external, internal in tensor.graph.captures}
    calls = calls_in_progress()[:depth]
    given: dict[str, Tensor] = {}
    for op in needed:
        if op.type != "Placeholder":
            continue
        (own,) = op.outputs
        number, source = next(
            ((n, call.values[id(own)][1]) for n, call in enumerate(calls) if id(own) in call.values),
            (depth, outer.get(own.name)),
        )
        value = None if source is None else _value(source, number)
        if value is None:
            return None
        given[own.name] = value
    return given[tensor.name] if tensor.name in given else _computed(tensor, needed, given)


def _slice(op: GraphOperation) -> list[Any] | None:
    """Return the ops on which an op depends, itself included; None if one is stateful."""
    found: dict[str, Any] = {}
    work = [op]
    while work:
        one = work.pop()
        if one.name in found:
            continue
        if one.op_def.is_stateful:
            return None
        found[one.name] = one
        work += [tensor.op for tensor in one.inputs]
    return list(found.values())


def _computed(tensor: Tensor, needed: Sequence[Any], given: Mapping[str, Tensor]) -> Tensor:
    part = WholeGraph(tensor.graph).part([op.name for op in needed if op.type != "Placeholder"])

    def body(*values: Tensor) -> Tensor:
        known = dict(zip(given, values, strict=True))
        return importer.import_graph_def(part, input_map=known, return_elements=[tensor.name], name="")[0]

    body.__name__ = MEASURED
    # Not called as a tf.function: TensorFlow would warn that functions with this body are traced again and again.
    return tf.function(body, autograph=False).get_concrete_function(*given.values())(*given.values())
