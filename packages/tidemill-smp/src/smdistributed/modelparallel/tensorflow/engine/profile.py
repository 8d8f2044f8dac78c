"""Measures the times of the units of a trace: runs the ops of one step one by one, and adds their times.

User code runs only on the script's own input: the ops run once, in the order of the trace, on copies of a real
microbatch and of the variables, which yields the inputs of every op. An op is repeated until its time is known; ops
with equal attributes and shapes are repeated once. Stateful ops never run, except on the copies of variables: neither
Python nor prints, writes, random ops with a state of their own, nor messages. What depends on their results is not
measured.

Functions of several ops would be closer to what the step runs, but to build, optimize and load one for each layer takes
longer than many trainings wait for their first step.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import NodeDef, Tensor, Variable
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.marks import REPLICATED
from tensorflow.core.framework import node_def_pb2
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_registry, tensor_util

LOSS = "(loss)"
"""Pseudo-unit for all ops outside the models."""
_CALLS = 20
_FEWEST_CALLS = 5
_CALLS_S = 0.005
"""An op is repeated `_CALLS` times, or for this long but at least `_FEWEST_CALLS` times: the shortest time counts."""
_LEAST_US = 0.1
_SMALL = 16
"""Elements of an integer tensor that may be an axis, a shape or a size."""
Pair = tuple[float, float]
_REACHING_OUT = ("Print", "Write", "Save", "Collective", "Horovod", "Send", "Recv", "Xla")
"""First parts of the types of ops with effects outside the graph, which not all of them declare."""
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape"})
_LOOPS = frozenset({"While", "StatelessWhile", "For"})
_PASSED_ON = frozenset({"Identity", "NoOp"})


@dataclass(frozen=True)
class UnitTimes:
    """Times of one unit for one microbatch, in microseconds."""

    forward_us: float
    backward_us: float | None
    """None if only the forward pass was measured."""

    def least(self, other: UnitTimes | None) -> UnitTimes:
        """Return the shorter of two measurements: the longer one was disturbed.

        Args:
            other: Times of the same layer; None for none.
        """
        if other is None:
            return self
        backward = [each for each in (self.backward_us, other.backward_us) if each is not None]
        return UnitTimes(min(self.forward_us, other.forward_us), min(backward, default=None))


def measure(
    trace: Trace, given: Mapping[Output, Tensor | Variable], *, budget_s: float = math.inf
) -> dict[str, UnitTimes]:
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
            members.setdefault(LOSS if unit in (None, REPLICATED) else unit, []).append(node.index)
    probe = _Probe(trace, given)
    whole = {unit for unit, nodes in members.items() if probe.measurable(nodes)}
    members = {unit: nodes if unit in whole else probe.forward(nodes) for unit, nodes in members.items()}
    members = {unit: probe.measurable(nodes) for unit, nodes in members.items()}
    members = {unit: nodes for unit, nodes in members.items() if nodes and (unit in whole or unit != LOSS)}
    times = probe.run(budget_s)
    found: dict[str, UnitTimes] = {}
    for unit, nodes in members.items():
        if times.keys() >= set(nodes):
            forward = sum(times[index] for index in probe.forward(nodes))
            backward = sum(times[index] for index in nodes) - forward if unit in whole else None
            found[unit] = UnitTimes(max(forward, _LEAST_US), backward)
    return found


class _Probe:
    def __init__(self, trace: Trace, given: Mapping[Output, Tensor | Variable]) -> None:
        self.trace = trace
        self._variables = [value for value in given.values() if isinstance(value, tf.Variable)]
        """Keeps the variables of the handles in `_values` alive."""
        self._values: dict[Output, Any] = {
            o: value.handle if isinstance(value, tf.Variable) else value for o, value in given.items()
        }
        """Known values of tensors."""
        graph = trace.graph.as_graph_def()
        self._library = graph.library
        self._attributes: dict[bytes, list[Any]] = {}
        """Attributes of ops by `_key`."""
        self._definitions = {node.name: node for node in graph.node}
        self._forbidden = _functions_with(self._library, _is_forbidden)
        self._writing = _functions_with(self._library, _writes)
        looping = _functions_with(self._library, _loops)
        self._runs: set[int] = set()
        written: set[Output] = set()
        for node in trace.nodes:
            if self._can_run(node):
                self._runs.add(node.index)
            if _writes(self._definitions[node.name], self._writing):
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

    def forward(self, nodes: Sequence[int]) -> list[int]:
        """Return the nodes that do not belong to the backward pass."""
        return [index for index in nodes if not is_backward(self.trace.nodes[index])]

    def run(self, budget_s: float) -> dict[int, float]:
        """Run what can run of the trace once, and return the time of each op in microseconds, without the call's.

        Args:
            budget_s: Time limit in seconds; ops that are not reached in time are omitted.
        """
        end_s = time.monotonic() + budget_s
        nodes = [node for node in self.trace.nodes if node.index in self._runs and node.type != "Placeholder"]
        users = Counter(output for node in nodes for output in node.inputs)
        kinds: dict[Hashable, float] = {}
        found: dict[int, float] = {}
        with tf.init_scope(), _known_to_the_runtime(self._library):
            call_us = _least_us(_call("Identity", [tf.zeros([])], ["T", tf.float32.as_datatype_enum], 1))
            for node in nodes:
                if time.monotonic() > end_s:
                    break
                inputs = [self._values[output] for output in node.inputs]
                kind = self._key(node), tuple(map(_form, inputs))  # all that the time depends on
                results, call = self._run(node, inputs)
                if kind not in kinds:
                    kinds[kind] = max(_least_us(call) - call_us, 0.0) if call is not None else 0.0
                found[node.index] = kinds[kind]
                self._values |= {(node.index, n): v for n, v in enumerate(results) if (node.index, n) in users}
                self._forget_inputs(node, users)
        return found

    def _forget_inputs(self, node: Node, users: Counter[Output]) -> None:
        """Count down the users of a node's inputs, and delete the values that no other node uses."""
        users.subtract(node.inputs)
        for output in set(node.inputs):
            if users[output] == 0:
                del self._values[output]

    def _run(self, node: Node, inputs: list[Tensor]) -> tuple[list[Any], Callable[[], Any] | None]:
        """Run a node; return its results, and a function that repeats it without changing a variable."""
        definition = self._definitions[node.name]
        if node.type == "NoOp":
            return [], None
        if node.type == "Const":
            return [tf.constant(tensor_util.MakeNdarray(definition.attr["value"].tensor))], None
        key = self._key(node)
        attributes = self._attributes[key] = self._attributes.get(key) or _attributes(definition)
        count = len(self.trace.graph.get_operation_by_name(node.name).outputs)
        results = _call(node.type, inputs, attributes, count)()
        if _writes(definition, self._writing):
            copies = [_scratch(value) if value.dtype == tf.resource else value for value in inputs]
            inputs = [copy.handle if isinstance(copy, tf.Variable) else copy for copy in copies]
            repeat = _call(node.type, inputs, attributes, count)
            return results, lambda kept=copies: repeat()  # type: ignore[misc]
        return results, _call(node.type, inputs, attributes, count)

    def _key(self, node: Node) -> bytes:
        """Return a key of the op of a node and its attributes."""
        own = node_def_pb2.NodeDef()
        own.CopyFrom(self._definitions[node.name])
        own.ClearField("name")
        own.ClearField("input")
        own.ClearField("experimental_debug_info")
        for name in [name for name in own.attr if name.startswith("_")]:
            del own.attr[name]
        return own.SerializeToString(deterministic=True)


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


def _is_forbidden(node: NodeDef, functions: set[str]) -> bool:
    """Return whether a node has a state or an effect beyond its variables, or calls one of `functions`."""
    called = _called(node)
    if node.op.startswith(_REACHING_OUT) or not called.isdisjoint(functions):
        return True
    definition = op_def_registry.get(node.op)
    if definition is None:
        return True
    return definition.is_stateful and not called and not _has_resource(definition)


def _writes(node: NodeDef, functions: set[str]) -> bool:
    """Return whether a node may change a variable, or calls one of `functions`."""
    called = _called(node)
    if called:
        return not called.isdisjoint(functions)
    definition = op_def_registry.get(node.op)
    return definition is None or (_has_resource(definition) and node.op not in _READS | _PASSED_ON)


def _loops(node: NodeDef, functions: set[str]) -> bool:
    """Return whether a node is a loop, or calls one of `functions`."""
    return node.op in _LOOPS or not _called(node).isdisjoint(functions)


def _called(node: NodeDef) -> set[str]:
    """Return the functions that a node calls."""
    called = set()
    for value in node.attr.values():
        called |= {value.func.name, *(function.name for function in value.list.func)}
    return called - {""}


def _has_resource(definition: Any) -> bool:
    return any(argument.type == tf.resource.as_datatype_enum for argument in definition.input_arg)


def _call(op: str, inputs: list[Tensor], attributes: Sequence[Any], count: int) -> Callable[[], list[Any]]:
    return lambda: execute.execute(op, count, inputs, tuple(attributes), context.context())


def _attributes(definition: NodeDef) -> list[Any]:
    """Return the attributes of a node as names and values in turn."""
    return [
        part
        for name, value in definition.attr.items()
        if not name.startswith("_")
        for part in (name, _python_value(value))
    ]


def _python_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind != "list":
        return _single(kind, getattr(value, kind))
    lists = ((field.name, values) for field, values in value.list.ListFields())
    kind, values = next(lists, ("s", ()))
    return [_single(kind, each) for each in values]


def _single(kind: str, value: Any) -> Any:
    if kind == "shape":
        return None if value.unknown_rank else [dimension.size for dimension in value.dim]
    return value.name if kind == "func" else value


def _form(value: Any) -> Hashable:
    """Return what the time of an op depends on: the shape of a large input, the value of a small one (axes, sizes)."""
    data = value._handle_data if value.dtype == tf.resource else None
    if data is not None:
        return data.SerializeToString(deterministic=True)
    shape = tuple(value.shape.as_list())
    if value.dtype in (tf.int32, tf.int64) and math.prod(shape) <= _SMALL:
        return value.dtype.name, shape, value.numpy().tobytes()
    return value.dtype.name, shape


def _scratch(handle: Any) -> Any:
    """Return a copy of a variable; the handle itself if it is not known to be a variable."""
    data = handle._handle_data
    if data is None or len(data.shape_and_type) != 1:
        return handle
    dtype = tf.as_dtype(data.shape_and_type[0].dtype)
    return tf.Variable(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), trainable=False)


@contextmanager
def _known_to_the_runtime(library: Any) -> Generator[None]:
    """Register the functions of a graph that the eager runtime does not know, inside this context."""
    runtime = context.context()
    added = [function for function in library.function if not runtime.has_function(function.signature.name)]
    for function in added:
        runtime.add_function_def(function)
    try:
        yield
    finally:
        for function in added:
            runtime.remove_function(function.signature.name)


def _least_us(call: Callable[[], Any]) -> float:
    """Return the shortest time of several calls: the longer ones were disturbed."""
    least_s, spent_s, calls = math.inf, 0.0, 0
    while calls < _FEWEST_CALLS or (calls < _CALLS and spent_s < _CALLS_S):
        begin = time.perf_counter()
        call()
        took_s = time.perf_counter() - begin
        least_s, spent_s, calls = min(least_s, took_s), spent_s + took_s, calls + 1
    return least_s * 1e6


def scaled(times: Mapping[str, UnitTimes], estimates: Mapping[str, Pair]) -> tuple[dict[str, Pair], float]:
    """Return times for all units, measured or else estimated times a ratio, and that ratio (measured / estimated).

    Args:
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
