"""How long the units of a trace take, measured one by one.

Each unit's ops, forward alone and forward with backward, are run as a function of their own on zeros of the right
shapes. No variable of the model is read: where ops take a resource, they get one made for the purpose. So a model can
be measured before it is cut, by a process that could not hold it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.engine.extract import WholeGraph
from smdistributed.modelparallel.tensorflow.engine.nodes import Output
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.marks import EVERYWHERE
from tensorflow.python.framework import importer
from tensorflow.python.ops import handle_data_util

__all__ = ["LOSS", "Times", "measure", "scaled"]

LOSS = "(loss)"
"""Instead of a unit: what is computed outside the models."""
_REPEATS = 5
_CALLS_S = 0.01
"""How long the calls of one reading last at least, so that the clock and the scheduler count for little."""
_LEAST_US = 0.1


@dataclass(frozen=True)
class Times:
    """Of one unit and one microbatch, in microseconds."""

    forward_us: float
    backward_us: float

    def least(self, other: Times | None) -> Times:
        """The shorter of two readings: what is longer was disturbed."""
        if other is None:
            return self
        return Times(min(self.forward_us, other.forward_us), min(self.backward_us, other.backward_us))


def measure(trace: Trace) -> dict[str, Times]:
    """Measure the units of a trace, and what is in none as `LOSS`.

    Those that take what cannot be made up, such as strings, are left out.

    Args:
        trace: A step traced with automatic partitioning, with its gradients, whose shapes are known.
    """
    members: dict[str, list[int]] = {}
    for node in trace.nodes:
        unit = trace.tracer.units.get(node.name)
        if node.type != "Placeholder":
            members.setdefault(LOSS if unit in (None, EVERYWHERE) else str(unit), []).append(node.index)
    probe = _Probe(trace)
    call_us = probe.call_us()
    return {unit: times for unit, nodes in members.items() if (times := _times(probe, nodes, call_us)) is not None}


def _times(probe: _Probe, nodes: Sequence[int], call_us: float) -> Times | None:
    forward = probe.microseconds([index for index in nodes if not is_backward(probe.trace.nodes[index])])
    whole = probe.microseconds(nodes)
    if forward is None or whole is None:
        return None
    return Times(max(forward - call_us, _LEAST_US), max(whole - max(forward, call_us), 0.0))


class _Probe:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._graph = WholeGraph(trace.graph)
        self._constants: set[int] = set()
        """What needs nothing, such as the axes that a gradient sums over: copied to whatever takes it."""
        for node in trace.nodes:
            free = not (node.stateful or node.handles or node.type == "Placeholder")
            if free and all(source in self._constants for source, _ in node.inputs):
                self._constants.add(node.index)

    def call_us(self) -> float:
        """What calling a function costs that does nothing."""
        nothing = tf.function(tf.identity, autograph=False).get_concrete_function(tf.TensorSpec([], tf.float32))
        value = tf.zeros([])
        return _median_us(lambda: nothing(value))

    def microseconds(self, nodes: Sequence[int]) -> float | None:
        """How long `nodes` take, with the call; None if they need what cannot be made up."""
        mine, work = set(nodes), list(nodes)
        taken: set[Output] = set()
        while work:
            for output in self.trace.nodes[work.pop()].inputs:
                taken.add(output)
                if output[0] not in mine and (output[0] in self._constants or self._must_be_made(output)):
                    mine.add(output[0])
                    work.append(output[0])
        inputs = sorted(output for output in taken if output[0] not in mine)
        kept: list[Any] = []
        values = [_made_up(self._tensor(output), kept) for output in inputs]
        if any(value is None for value in values):
            return None
        function = self._function(sorted(mine), inputs, values)
        return _median_us(lambda: function(*values))

    def _must_be_made(self, output: Output) -> bool:
        """Whether the op that makes it belongs to no unit, and makes what cannot be made up: the list of a loop."""
        unit = self.trace.tracer.units.get(self.trace.nodes[output[0]].name)
        return unit in (None, EVERYWHERE) and self._tensor(output).dtype == tf.variant

    def _function(self, nodes: Sequence[int], inputs: Sequence[Output], values: Sequence[Any]) -> Any:
        trace = self.trace
        part = self._graph.part([trace.nodes[index].name for index in nodes])
        results, effects = self._results(nodes)

        def body(*tensors: Any) -> Any:
            known = {self._name(output): tensor for output, tensor in zip(inputs, tensors, strict=True)}
            found = importer.import_graph_def(part, input_map=known, return_elements=results + effects, name="")
            with tf.control_dependencies(found[len(results) :]):
                return [tf.identity(tensor) for tensor in found[: len(results)]]

        specs = [tf.TensorSpec(value.shape, value.dtype) for value in values]
        return tf.function(body, autograph=False).get_concrete_function(*specs)

    def _results(self, nodes: Sequence[int]) -> tuple[list[str], list[str]]:
        """The tensors that nothing among `nodes` takes, and the ops without any: what must be there at the end.

        An op that only a control dependency asks for is optimized away.
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


def _made_up(tensor: Any, kept: list[Any]) -> Any:
    """A value that an op takes for `tensor`; None if there is none. `kept` keeps its resources alive."""
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


def _median_us(call: Callable[[], Any]) -> float:
    call()  # the first call optimizes the graph
    begin = time.perf_counter()
    call()
    once_s = max(time.perf_counter() - begin, 1e-6)
    calls = max(1, min(1000, int(_CALLS_S / once_s)))
    return statistics.median(_reading_us(call, calls) for _ in range(_REPEATS))


def _reading_us(call: Callable[[], Any], calls: int) -> float:
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def scaled(times: Mapping[str, Times], estimates: Mapping[str, Times]) -> tuple[dict[str, Times], float]:
    """Times of all units of `estimates`: measured ones, and the others' estimates times the ratio returned with it."""
    known = [unit for unit in estimates if unit in times]
    measured = sum(times[unit].forward_us + times[unit].backward_us for unit in known)
    estimated = sum(estimates[unit].forward_us + estimates[unit].backward_us for unit in known)
    ratio = measured / estimated if estimated > 0 else 1.0
    guesses = {unit: Times(guess.forward_us * ratio, guess.backward_us * ratio) for unit, guess in estimates.items()}
    return guesses | {unit: times[unit] for unit in known}, ratio
