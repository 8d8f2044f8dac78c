"""Measures the times of the units of a trace one by one; units with equal ops and shapes are measured once.

User code runs only on the script's own input: the trace runs once on copies of a real microbatch and of the variables,
which yields the inputs of every unit; then the ops of each unit run as a separate function on these, once forward alone
and once forward and backward. Stateful ops never run, except on the copies of variables: neither Python nor prints,
writes, random ops with a state of their own, nor messages. What depends on their results is not measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.engine.extract import WholeGraph
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.graph_names import MEASURED
from smdistributed.modelparallel.tensorflow.marks import REPLICATED
from tensorflow.python.framework import importer, op_def_registry
from tensorflow.python.ops import handle_data_util

__all__ = ["LOSS", "Times", "measure", "scaled"]

LOSS = "(loss)"
"""Pseudo-unit for all ops outside the models."""
_REPEATS = 5
_CALLS_S = 0.01
"""Least duration of the calls of one measurement, so that clock resolution and scheduling hardly matter."""
_LEAST_US = 0.1
Pair = tuple[float, float]
_REACHING_OUT = ("Print", "Write", "Save", "Collective", "Horovod", "Send", "Recv", "Xla")
"""First parts of the types of ops with effects outside the graph, which not all of them declare."""
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
_LOOPS = frozenset({"While", "StatelessWhile", "For"})
_PASSED_ON = frozenset({"Identity", "NoOp"})


@dataclass(frozen=True)
class Times:
    """Times of one unit for one microbatch, in microseconds."""

    forward_us: float
    backward_us: float | None
    """None if only the forward pass was measured."""

    def least(self, other: Times | None) -> Times:
        """Return the shorter of two measurements: the longer one was disturbed."""
        if other is None:
            return self
        backward = [each for each in (self.backward_us, other.backward_us) if each is not None]
        return Times(min(self.forward_us, other.forward_us), min(backward, default=None))


def measure(trace: Trace, given: Mapping[Output, Any], *, budget_s: float = math.inf) -> dict[str, Times]:
    """Measure the units of a trace, and the ops outside all units as `LOSS`.

    Units with stateful ops, and units whose inputs depend on such ops or on unknown values, are omitted. If only the
    backward pass depends on them, as before a layer that calls Python, the forward pass alone is measured.

    Args:
        trace: A step traced with automatic partitioning and its gradients.
        given: Values of the trace's placeholders, and copies of its variables: see `inputs_of`.
        budget_s: Time limit in seconds; units that are not reached in time are omitted.
    """
    members: dict[str, list[int]] = {}
    for node in trace.nodes:
        unit = trace.tracer.units.get(node.name)
        if node.type != "Placeholder":
            members.setdefault(LOSS if unit in (None, REPLICATED) else str(unit), []).append(node.index)
    end_s = time.monotonic() + budget_s
    probe = _Probe(trace, given)
    whole = {unit for unit, nodes in members.items() if probe.measurable(nodes)}
    members = {unit: nodes if unit in whole else probe.forward(nodes) for unit, nodes in members.items()}
    members = {unit: probe.measurable(nodes) for unit, nodes in members.items()}
    members = {unit: nodes for unit, nodes in members.items() if nodes and (unit in whole or unit != LOSS)}
    probe.record(members.values())
    call_us = probe.call_us()
    kinds = {unit: (unit in whole, probe.kind(nodes)) for unit, nodes in members.items()}
    alike: dict[Hashable, Times | None] = {}
    for unit, nodes in members.items():
        if time.monotonic() > end_s:
            break
        if kinds[unit] not in alike:
            alike[kinds[unit]] = _times(probe, nodes, call_us, is_whole=unit in whole)
    found = {unit: alike.get(kind) for unit, kind in kinds.items()}
    return {unit: times for unit, times in found.items() if times is not None}


def _times(probe: _Probe, nodes: Sequence[int], call_us: float, *, is_whole: bool) -> Times:
    forward = probe.microseconds(probe.forward(nodes))
    backward = max(probe.microseconds(nodes) - max(forward, call_us), 0.0) if is_whole else None
    return Times(max(forward - call_us, _LEAST_US), backward)


class _Probe:
    def __init__(self, trace: Trace, given: Mapping[Output, Any]) -> None:
        self.trace = trace
        self._values = dict(given)
        """Known values of tensors; a tf.Variable in place of a handle."""
        self._graph = WholeGraph(trace.graph)
        self._definitions = {node.name: node for node in self._graph.definition.node}
        self._forbidden = _functions_with(self._graph.definition.library, _is_forbidden)
        writing = _functions_with(self._graph.definition.library, _writes)
        looping = _functions_with(self._graph.definition.library, _loops)
        self._runs: set[int] = set()
        self._constants: set[int] = set()
        """Nodes without inputs, such as the axes that a gradient sums over, which are copied to their users."""
        written: set[Output] = set()
        for node in trace.nodes:
            if self._can_run(node):
                self._runs.add(node.index)
                free = not (node.stateful or node.handles or node.type == "Placeholder")
                if free and all(source in self._constants for source, _ in node.inputs):
                    self._constants.add(node.index)
            if _writes(self._definitions[node.name], writing):
                written.update(node.handles)
        self._written = written
        self._loops = {node.index for node in trace.nodes if _loops(self._definitions[node.name], looping)}
        self._unused = _unused(trace)

    def _can_run(self, node: Node) -> bool:
        """Return whether a node and all on which it depends run without effects on anything but copies."""
        if node.type == "Placeholder":
            return (node.index, 0) in self._values
        if any(handle not in self._values for handle in node.handles):
            return False
        if any(source not in self._runs for source, _ in node.inputs):
            return False
        return not _is_forbidden(self._definitions[node.name], self._forbidden)

    def measurable(self, nodes: Sequence[int]) -> list[int]:
        """Return the nodes of a unit to run; none if they are not all that matters for its time.

        A unit with a loop is not measured if it uses variables that the step changes: repetitions of the unit would
        change them further than any step does, and with them how often the loop runs, or whether it ends.
        """
        runs = [index for index in nodes if index in self._runs]
        left_out = [index for index in nodes if index not in self._runs and index not in self._unused]
        handles = {handle for index in nodes for handle in self.trace.nodes[index].handles}
        if left_out or (not self._loops.isdisjoint(nodes) and not self._written.isdisjoint(handles)):
            return []
        return runs

    def record(self, units: Iterable[Sequence[int]]) -> None:
        """Run what runs of the trace once, and keep the values that the units take from each other."""
        wanted: set[Output] = set()
        for nodes in units:
            wanted |= {*self._taken(nodes)[1], *self._taken(self.forward(nodes))[1]}
        wanted -= set(self._values)
        nodes = sorted(index for index in self._runs if self.trace.nodes[index].type != "Placeholder")
        if not wanted:
            return
        inputs = sorted({o for i in nodes for o in self.trace.nodes[i].inputs if o in self._values})
        outputs = sorted(wanted)
        function = self._function(nodes, inputs, [self._name(output) for output in outputs])
        self._values |= dict(zip(outputs, function(*self._arguments(inputs)), strict=True))

    def call_us(self) -> float:
        """Return the time of calling an empty function."""
        nothing = tf.function(tf.identity, autograph=False).get_concrete_function(tf.TensorSpec([], tf.float32))
        value = tf.zeros([])
        return _least_us(lambda: nothing(value))

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
        definition = self._definitions[self.trace.nodes[index].name]
        own = {name: value for name, value in definition.attr.items() if not name.startswith("_")}
        return definition.op, tuple((name, own[name].SerializeToString(deterministic=True)) for name in sorted(own))

    def _form(self, output: Output) -> Hashable:
        if output[0] in self._constants:
            return self._attributes(output[0])
        value = self._values[output]
        return isinstance(value, tf.Variable), value.dtype.name, str(value.shape)

    def microseconds(self, nodes: Sequence[int]) -> float:
        """Return the time of `nodes` including the call."""
        mine, inputs = self._taken(nodes)
        results, effects = self._results(mine)
        function, values = self._function(mine, inputs, results + effects), self._arguments(inputs)
        return _least_us(lambda: function(*values))

    def forward(self, nodes: Sequence[int]) -> list[int]:
        """Return the nodes that do not belong to the backward pass."""
        return [index for index in nodes if not is_backward(self.trace.nodes[index])]

    def _taken(self, nodes: Sequence[int]) -> tuple[list[int], list[Output]]:
        """Return `nodes` with the constants that they use, and the tensors that they take from others."""
        mine, work = set(nodes), list(nodes)
        taken: set[Output] = set()
        while work:
            for output in self.trace.nodes[work.pop()].inputs:
                taken.add(output)
                if output[0] not in mine and output[0] in self._constants:
                    mine.add(output[0])
                    work.append(output[0])
        return sorted(mine), sorted(output for output in taken if output[0] not in mine)

    def _arguments(self, inputs: Sequence[Output]) -> list[Any]:
        values = [self._values[output] for output in inputs]
        return [value.handle if isinstance(value, tf.Variable) else value for value in values]

    def _function(self, nodes: Sequence[int], inputs: Sequence[Output], wanted: Sequence[str]) -> Any:
        """Return a function of `inputs` that runs `nodes`; `wanted` names its results, and ops without results."""
        part = self._graph.part([self.trace.nodes[index].name for index in nodes])
        results, effects = [name for name in wanted if ":" in name], [name for name in wanted if ":" not in name]
        sources = [self._tensor(output) for output in inputs]

        def body(*tensors: Any) -> Any:
            for source, tensor in zip(sources, tensors, strict=True):
                if source.dtype in (tf.resource, tf.variant):
                    handle_data_util.copy_handle_data(source, tensor)
            known = {self._name(output): tensor for output, tensor in zip(inputs, tensors, strict=True)}
            found = importer.import_graph_def(part, input_map=known, return_elements=results + effects, name="")
            with tf.control_dependencies(found[len(results) :]):
                return [tf.identity(tensor) for tensor in found[: len(results)]]

        body.__name__ = MEASURED
        specs = [tf.TensorSpec(value.shape, value.dtype) for value in self._arguments(inputs)]
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


def _unused(trace: Trace) -> set[int]:
    """Return the nodes whose values nothing uses, such as assertions and prints."""
    results = {output[0] for result in trace.results for output in result.outputs}
    users: dict[int, list[Node]] = {}
    found: set[int] = set()
    for node in reversed(trace.nodes):
        # The result of an assertion in a branch is passed on, but only as a control dependency.
        if node.index not in results and all(
            user.index in found and user.type in _PASSED_ON for user in users.get(node.index, ())
        ):
            found.add(node.index)
        for source, _ in node.inputs:
            users.setdefault(source, []).append(node)
    return found


def _functions_with(library: Any, has: Callable[[Any, set[str]], bool]) -> set[str]:
    """Return the functions with a node for which `has` is true, directly or through functions that they call."""
    found: set[str] = set()
    while True:
        more = {
            function.signature.name
            for function in library.function
            if function.signature.name not in found and any(has(node, found) for node in function.node_def)
        }
        if not more:
            return found
        found |= more


def _is_forbidden(node: Any, functions: set[str]) -> bool:
    """Return whether a node has a state or an effect beyond its variables, or calls one of `functions`."""
    called = _called(node)
    if node.op.startswith(_REACHING_OUT) or not called.isdisjoint(functions):
        return True
    definition = op_def_registry.get(node.op)
    if definition is None:
        return True
    return definition.is_stateful and not called and not _has_resource(definition)


def _writes(node: Any, functions: set[str]) -> bool:
    """Return whether a node may change a variable, or calls one of `functions`."""
    called = _called(node)
    if called:
        return not called.isdisjoint(functions)
    definition = op_def_registry.get(node.op)
    return definition is None or (_has_resource(definition) and node.op not in _READS | _PASSED_ON)


def _loops(node: Any, functions: set[str]) -> bool:
    """Return whether a node is a loop, or calls one of `functions`."""
    return node.op in _LOOPS or not _called(node).isdisjoint(functions)


def _called(node: Any) -> set[str]:
    """Return the functions that a node calls."""
    called = set()
    for value in node.attr.values():
        called |= {value.func.name, *(function.name for function in value.list.func)}
    return called - {""}


def _has_resource(definition: Any) -> bool:
    return any(argument.type == tf.resource.as_datatype_enum for argument in definition.input_arg)


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


def scaled(times: Mapping[str, Times], estimates: Mapping[str, Pair]) -> tuple[dict[str, Pair], float]:
    """Return times for all units, measured or else estimated times a ratio, and that ratio (measured / estimated).

    Args:
        times: Measured times.
        estimates: Estimated times of the forward and of the backward pass of all units.
    """
    both = [(times[unit], guess) for unit, guess in estimates.items() if unit in times]
    pairs = [pair for each, guess in both for pair in ((each.forward_us, guess[0]), (each.backward_us, guess[1]))]
    known = [(measured, guess) for measured, guess in pairs if measured is not None]
    estimated = sum(guess for _, guess in known)
    ratio = sum(measured for measured, _ in known) / estimated if estimated > 0 else 1.0
    found = {unit: (forward * ratio, backward * ratio) for unit, (forward, backward) in estimates.items()}
    for unit in estimates.keys() & times.keys():
        forward, backward = times[unit].forward_us, times[unit].backward_us
        if backward is None:  # as much longer than its estimate as the forward pass
            guess = estimates[unit]
            backward = guess[1] * (forward / guess[0] if guess[0] > 0 else ratio)
        found[unit] = forward, backward
    return found, ratio
