"""Measures the times of the units of a trace one by one; units with equal ops and shapes are measured once.

The ops of each unit are run as a separate function on zeros of the right shapes, once forward alone and once forward
and backward. No variable of the model is read: ops on resources get temporary ones. So a model can be measured before
it is partitioned, by a process that could not hold it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.engine.extract import WholeGraph
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.graph_names import MEASURED
from smdistributed.modelparallel.tensorflow.marks import REPLICATED
from tensorflow.python.framework import importer
from tensorflow.python.ops import handle_data_util

__all__ = ["LOSS", "Times", "measure", "scaled"]

LOSS = "(loss)"
"""Pseudo-unit for all ops outside the models."""
_REPEATS = 5
_CALLS_S = 0.01
"""Least duration of the calls of one measurement, so that clock resolution and scheduling hardly matter."""
_LEAST_US = 0.1
_REACHING_OUT = ("PyFunc", "EagerPyFunc", "Print", "Write", "Save", "Collective", "Horovod", "Send", "Recv", "Xla")
"""Parts of the types of ops with effects outside the graph, which run only if the script requests profiling."""


@dataclass(frozen=True)
class Times:
    """Times of one unit for one microbatch, in microseconds."""

    forward_us: float
    backward_us: float

    def least(self, other: Times | None) -> Times:
        """Return the shorter of two measurements: the longer one was disturbed."""
        if other is None:
            return self
        return Times(min(self.forward_us, other.forward_us), min(self.backward_us, other.backward_us))


def measure(trace: Trace, *, budget_s: float = math.inf, reaching_out: bool = True) -> dict[str, Times]:
    """Measure the units of a trace, and the ops outside all units as `LOSS`.

    Units whose inputs cannot be fabricated, such as strings, and units that fail on zeros are omitted.

    Args:
        trace: A step traced with automatic partitioning and its gradients, with static shapes.
        budget_s: Time limit in seconds; units that are not reached in time are omitted.
        reaching_out: Whether to run units that call Python, print or write.
    """
    members: dict[str, list[int]] = {}
    for node in trace.nodes:
        unit = trace.tracer.units.get(node.name)
        if node.type != "Placeholder":
            members.setdefault(LOSS if unit in (None, REPLICATED) else str(unit), []).append(node.index)
    probe = _Probe(trace)
    call_us = probe.call_us()
    end_s = time.monotonic() + budget_s
    kinds = {unit: probe.kind(nodes) for unit, nodes in members.items()}
    alike: dict[Hashable, Times | None] = {}
    for unit, nodes in members.items():
        if time.monotonic() > end_s:
            break
        if kinds[unit] not in alike and (reaching_out or not probe.reaches_out(nodes)):
            alike[kinds[unit]] = _times(probe, nodes, call_us)
    found = {unit: alike.get(kind) for unit, kind in kinds.items()}
    return {unit: times for unit, times in found.items() if times is not None}


def _times(probe: _Probe, nodes: Sequence[int], call_us: float) -> Times | None:
    try:
        forward = probe.microseconds([index for index in nodes if not is_backward(probe.trace.nodes[index])])
        whole = probe.microseconds(nodes)
    except tf.errors.OpError:  # an assertion that zeros do not satisfy
        return None
    if forward is None or whole is None:
        return None
    return Times(max(forward - call_us, _LEAST_US), max(whole - max(forward, call_us), 0.0))


class _Probe:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._graph = WholeGraph(trace.graph)
        self._reaching_out = _functions_reaching_out(self._graph.definition.library)
        self._constants: set[int] = set()
        """Nodes without inputs, such as the axes that a gradient sums over, which are copied to their users."""
        for node in trace.nodes:
            free = not (node.stateful or node.handles or node.type == "Placeholder")
            if free and all(source in self._constants for source, _ in node.inputs):
                self._constants.add(node.index)

    def call_us(self) -> float:
        """Return the time of calling an empty function."""
        nothing = tf.function(tf.identity, autograph=False).get_concrete_function(tf.TensorSpec([], tf.float32))
        value = tf.zeros([])
        return _least_us(lambda: nothing(value))

    def reaches_out(self, nodes: Sequence[int]) -> bool:
        """Return whether an op of `nodes`, or a function that it calls, has an effect outside the graph."""
        operations = (self.trace.graph.get_operation_by_name(self.trace.nodes[index].name) for index in nodes)
        return any(_calls(operation.node_def, self._reaching_out) for operation in operations)

    def kind(self, nodes: Sequence[int]) -> Hashable:
        """Return a key of everything the time of `nodes` depends on: ops, connections, and shapes of inputs."""
        place = {index: number for number, index in enumerate(nodes)}
        return tuple(
            (
                self._attributes(index),
                tuple(
                    (place[output[0]], output[1]) if output[0] in place else self._form(output)
                    for output in self.trace.nodes[index].inputs
                ),
            )
            for index in nodes
        )

    def _attributes(self, index: int) -> Hashable:
        definition = self.trace.graph.get_operation_by_name(self.trace.nodes[index].name).node_def
        own = {name: value for name, value in definition.attr.items() if not name.startswith("_")}
        return definition.op, tuple((name, own[name].SerializeToString(deterministic=True)) for name in sorted(own))

    def _form(self, output: Output) -> Hashable:
        if output[0] in self._constants:
            return self._attributes(output[0])
        tensor = self._tensor(output)
        if tensor.dtype != tf.resource:
            return tensor.dtype.name, str(tensor.shape)
        data = handle_data_util.get_resource_handle_data(tensor)
        return "resource", b"" if data is None else data.SerializeToString(deterministic=True)

    def microseconds(self, nodes: Sequence[int]) -> float | None:
        """Return the time of `nodes` including the call; None if an input cannot be fabricated."""
        mine, work = set(nodes), list(nodes)
        taken: set[Output] = set()
        while work:
            for output in self.trace.nodes[work.pop()].inputs:
                taken.add(output)
                if output[0] not in mine and (output[0] in self._constants or self._must_run(output)):
                    mine.add(output[0])
                    work.append(output[0])
        inputs = sorted(output for output in taken if output[0] not in mine)
        kept: list[Any] = []
        values = [_fabricated(self._tensor(output), kept) for output in inputs]
        if any(value is None for value in values):
            return None
        function = self._function(sorted(mine), inputs, values)
        return _least_us(lambda: function(*values))

    def _must_run(self, output: Output) -> bool:
        """Return whether a tensor's op must run: it is in no unit, and its result cannot be fabricated (loop lists)."""
        unit = self.trace.tracer.units.get(self.trace.nodes[output[0]].name)
        return unit in (None, REPLICATED) and self._tensor(output).dtype == tf.variant

    def _function(self, nodes: Sequence[int], inputs: Sequence[Output], values: Sequence[Any]) -> Any:
        trace = self.trace
        part = self._graph.part([trace.nodes[index].name for index in nodes])
        results, effects = self._results(nodes)

        def body(*tensors: Any) -> Any:
            known = {self._name(output): tensor for output, tensor in zip(inputs, tensors, strict=True)}
            found = importer.import_graph_def(part, input_map=known, return_elements=results + effects, name="")
            with tf.control_dependencies(found[len(results) :]):
                return [tf.identity(tensor) for tensor in found[: len(results)]]

        body.__name__ = MEASURED
        specs = [tf.TensorSpec(value.shape, value.dtype) for value in values]
        return tf.function(body, autograph=False).get_concrete_function(*specs)

    def _results(self, nodes: Sequence[int]) -> tuple[list[str], list[str]]:
        """Return the tensors that no node uses, and the ops without outputs: the results that force `nodes` to run.

        An op that is only a control dependency would be optimized away.
        """
        used = {output for index in nodes for output in self.trace.nodes[index].inputs}
        results: list[str] = []
        effects: list[str] = []
        for index in nodes:
            operation = self.trace.graph.get_operation_by_name(self.trace.nodes[index].name)
            if not operation.outputs:
                effects.append(operation.name)
            elif index not in self._constants:
                results += [self._name((index, n)) for n in range(len(operation.outputs)) if (index, n) not in used]
        return results, effects

    def _name(self, output: Output) -> str:
        return f"{self.trace.nodes[output[0]].name}:{output[1]}"

    def _tensor(self, output: Output) -> Any:
        return self.trace.graph.get_tensor_by_name(self._name(output))


def _functions_reaching_out(library: Any) -> set[str]:
    """Return the functions with an effect outside the graph, directly or through functions that they call."""
    found: set[str] = set()
    while True:
        more = {
            function.signature.name
            for function in library.function
            if function.signature.name not in found and any(_calls(node, found) for node in function.node_def)
        }
        if not more:
            return found
        found |= more


def _calls(node: Any, functions: set[str]) -> bool:
    """Return whether a node has an effect outside the graph, or calls one of `functions`."""
    called = {node.op}
    for value in node.attr.values():
        called |= {value.func.name, *(function.name for function in value.list.func)}
    return node.op.startswith(_REACHING_OUT) or not called.isdisjoint(functions)


def _fabricated(tensor: Any, kept: list[Any]) -> Any:
    """Fabricate a value for `tensor`; None if impossible. `kept` keeps its resources alive."""
    if tensor.dtype == tf.resource:
        data = handle_data_util.get_resource_handle_data(tensor)
        shapes = data.shape_and_type if data is not None and data.is_set else ()
        if len(shapes) != 1 or not tf.TensorShape(shapes[0].shape).is_fully_defined():
            return None
        kept.append(tf.Variable(tf.zeros(tf.TensorShape(shapes[0].shape), tf.as_dtype(shapes[0].dtype))))
        return kept[-1].handle
    if not (tensor.dtype.is_floating or tensor.dtype.is_integer or tensor.dtype.is_bool or tensor.dtype.is_complex):
        return None
    return tf.zeros(tensor.shape, tensor.dtype) if tensor.shape.is_fully_defined() else None


def _least_us(call: Callable[[], Any]) -> float:
    call()  # the first call optimizes the graph
    begin = time.perf_counter()
    call()
    once_s = max(time.perf_counter() - begin, 1e-6)
    calls = max(1, min(1000, int(_CALLS_S / once_s)))
    return min(_reading_us(call, calls) for _ in range(_REPEATS))  # longer measurements were disturbed


def _reading_us(call: Callable[[], Any], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def scaled(times: Mapping[str, Times], estimates: Mapping[str, Times]) -> tuple[dict[str, Times], float]:
    """Return times for all units, measured or else estimated times a ratio, and that ratio (measured / estimated)."""
    known = [unit for unit in estimates if unit in times]
    measured = sum(times[unit].forward_us + times[unit].backward_us for unit in known)
    estimated = sum(estimates[unit].forward_us + estimates[unit].backward_us for unit in known)
    ratio = measured / estimated if estimated > 0 else 1.0
    guesses = {unit: Times(guess.forward_us * ratio, guess.backward_us * ratio) for unit, guess in estimates.items()}
    return guesses | {unit: times[unit] for unit in known}, ratio
