"""Trace the body of a step once, for one microbatch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow.engine.hooks import gradient_hooks
from smdistributed.modelparallel.tensorflow.engine.inlining import inlining
from smdistributed.modelparallel.tensorflow.engine.layers import layer_hooks
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output, read_nodes
from smdistributed.modelparallel.tensorflow.keras_api import tensorflow_variable
from smdistributed.modelparallel.tensorflow.marks import MarkingGraph, Tracer, tracer, tracing
from tensorflow.python.eager.polymorphic_function import autograph_util
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import resource_variable_ops

__all__ = ["Result", "Trace", "trace"]


@dataclass(frozen=True)
class Result:
    """One leaf of what the body returned."""

    spec: tf.TypeSpec | None
    """The type of a tensor; None for a Python value."""
    outputs: tuple[Output, ...]
    """The tensor's components in the graph."""
    value: Any = None
    """The Python value."""


@dataclass(frozen=True)
class Trace:
    """The step of one microbatch as a graph."""

    graph: Any
    nodes: Sequence[Node]
    tracer: Tracer
    inputs: dict[Output, int]
    """Placeholder -> its place among the flat leaves of the microbatch."""
    captures: dict[Output, Any]
    """Placeholder -> the tensor outside: a variable's handle, an eager tensor, or a tensor of the caller's graph."""
    results: Sequence[Result]
    structure: Any
    """What the body returned, for `tf.nest.pack_sequence_as` with one leaf for each result."""
    effects: Sequence[int]
    """Nodes that must run for what they do."""

    def forget_handles(self) -> None:
        """Let go of the variables: what a foreign one had before the model was cut can then be freed."""
        for output in [output for output, tensor in self.captures.items() if tensor.dtype == tf.resource]:
            del self.captures[output]
        self.graph.function_captures.clear()


def trace(
    body: Callable[..., Any],
    specs: Sequence[Any],
    *,
    call: Callable[[Callable[..., Any], list[Any]], Any],
    automatic: bool,
) -> Trace:
    """Trace `body`.

    Args:
        body: The user's function.
        specs: A `tf.TypeSpec` for each leaf that is a tensor, None for the others.
        call: Calls its first argument with the arguments that the leaves make; those that are not tensors it knows.
        automatic: Whether layers are the units.

    Raises:
        SMPUsageError: If a step is being traced already.
    """
    if tracer() is not None:
        raise SMPUsageError("a function decorated with smp.step was called inside another one: call it outside")
    converted = autograph_util.py_func_from_autograph(body)
    returned: list[Any] = []

    def traced(*tensors: Any) -> list[Any]:
        given = iter(tensors)
        leaves = [None if spec is None else next(given) for spec in specs]
        structure = call(converted, leaves)
        returned.append(structure)
        return [_as_tensor(leaf) for leaf in _leaves(structure) if _is_tensor(leaf)]

    state = Tracer(automatic=automatic)
    graph = MarkingGraph("smp_step", tracer=state)
    with tracing(state), gradient_hooks(), layer_hooks(), inlining():
        func_graph.func_graph_from_py_func(
            "smp_step", traced, [spec for spec in specs if spec is not None], {}, func_graph=graph
        )
    return _read(graph, state, returned[0])


def _read(graph: Any, state: Tracer, structure: Any) -> Trace:
    nodes = read_nodes(graph)
    index = {node.name: node.index for node in nodes}
    captured = {id(internal): external for external, internal in graph.captures}
    flat_inputs = [tensor for tensor in graph.inputs if id(tensor) not in captured]
    outputs = iter(graph.outputs)
    results = []
    for leaf in _leaves(structure):
        if not _is_tensor(leaf):
            results.append(Result(None, (), leaf))
            continue
        spec = _spec_of(leaf)
        parts = tf.nest.flatten(spec, expand_composites=True)
        results.append(Result(spec, tuple(_output(index, _skip_identity(next(outputs))) for _ in parts)))
    return Trace(
        graph=graph,
        nodes=nodes,
        tracer=state,
        inputs={_output(index, tensor): place for place, tensor in enumerate(flat_inputs)},
        captures={_output(index, internal): external for external, internal in graph.captures},
        results=results,
        structure=structure,
        effects=[index[op.name] for op in graph.control_outputs],
    )


def _output(index: dict[str, int], tensor: Any) -> Output:
    return index[tensor.op.name], tensor.value_index


def _skip_identity(tensor: Any) -> Any:
    # func_graph_from_py_func puts an Identity on each output; the one of a gradient must stay where the gradient is.
    return tensor.op.inputs[0] if tensor.op.type == "Identity" and tensor.op.name.startswith("Identity") else tensor


def _leaves(structure: Any) -> list[Any]:
    return tf.nest.flatten(structure)


def _is_tensor(leaf: Any) -> bool:
    return tf.is_tensor(leaf) or resource_variable_ops.is_resource_variable(leaf)


def _as_tensor(leaf: Any) -> Any:
    variable = tensorflow_variable(leaf)
    return tf.convert_to_tensor(variable) if resource_variable_ops.is_resource_variable(variable) else leaf


def _spec_of(leaf: Any) -> Any:
    # Not by reading it: the value of a variable may be on another rank.
    variable = tensorflow_variable(leaf)
    if resource_variable_ops.is_resource_variable(variable):
        return tf.TensorSpec(variable.shape, variable.dtype)
    return tf.type_spec_from_value(leaf)
