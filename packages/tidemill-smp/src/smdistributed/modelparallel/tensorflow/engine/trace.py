"""Traces the body of a step once, for one microbatch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import tensorflow as tf
from smdistributed.modelparallel.backend.exceptions import SMPUsageError
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import KerasModel, Tensor, TypeSpec
from smdistributed.modelparallel.tensorflow.engine.batch import Batch
from smdistributed.modelparallel.tensorflow.engine.hooks import gradient_hooks
from smdistributed.modelparallel.tensorflow.engine.inlining import inlining
from smdistributed.modelparallel.tensorflow.engine.invariance import Invariance, invariance_of
from smdistributed.modelparallel.tensorflow.engine.layers import layer_hooks
from smdistributed.modelparallel.tensorflow.engine.lookups import SharedRows, shared_rows_of
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output, read_nodes
from smdistributed.modelparallel.tensorflow.engine.origins import Origins
from smdistributed.modelparallel.tensorflow.keras_api import tensorflow_variable
from smdistributed.modelparallel.tensorflow.marks import MarkingGraph, Tracer, tracer, tracing
from smdistributed.modelparallel.tensorflow.shared_rows import ALL_ROWS
from smdistributed.modelparallel.tensorflow.tensorflow_api import clear_captures, py_func_from_autograph
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import resource_variable_ops


@dataclass(frozen=True)
class Result:
    """One leaf of the structure that the body returned."""

    spec: tf.TypeSpec | None
    """The type of a tensor; None for a Python value."""
    outputs: tuple[Output, ...]
    """The tensor's components in the graph, and `shared_rows` if it is an output."""
    value: object = None
    """The Python value."""
    shared_rows: int | Output = 0
    """For `tf.IndexedSlices`: number of leading rows whose lookups all microbatches share, as an int, `ALL_ROWS`, or
    the output with the number."""
    origin: str = ""
    """Hash of the computation of those rows' indices: equal for equal computations."""


@dataclass(frozen=True)
class Trace:
    """The step of one microbatch as a graph."""

    graph: MarkingGraph
    nodes: Sequence[Node]
    tracer: Tracer
    inputs: dict[Output, int]
    """Placeholder -> its index among the flat leaves of the microbatch."""
    captures: dict[Output, Tensor]
    """Placeholder -> the captured tensor: a variable's handle, an eager tensor, or a tensor of the caller's graph."""
    results: Sequence[Result]
    structure: object
    """The structure that the body returned, for `tf.nest.pack_sequence_as` with one leaf per result."""
    effects: Sequence[int]
    """Nodes that must run for their side effects."""
    invariance: Invariance = field(default_factory=Invariance)
    """Which tensors are equal in all microbatches; empty if the trace was made without a `Batch`."""
    sums: Sequence[tuple[Output, Output]] = ()
    """A number of this microbatch, and the placeholder of its sum over the whole batch."""

    def of_summands(self) -> Trace:
        """Return the part of the step that computes the summands of `sums`, without side effects."""
        results = [Result(tf.TensorSpec([], tf.float64), (part,)) for part, _ in self.sums]
        return replace(self, results=results, structure=[None] * len(results), effects=(), sums=())

    def forget_handles(self) -> None:
        """Drop references to variables, so that the memory of variables that become remote can be freed."""
        for output in [output for output, tensor in self.captures.items() if tensor.dtype == tf.resource]:
            del self.captures[output]
        clear_captures(self.graph)


def trace(
    body: Callable[..., Any],
    specs: Sequence[TypeSpec | None],
    *,
    call: Callable[[Callable[..., Any], list[Any]], Any],
    automatic: bool,
    batch: Batch | None = None,
) -> Trace:
    """Trace `body`.

    Args:
        body: The user's function.
        specs: A `tf.TypeSpec` for each leaf that is a tensor, None for the others.
        call: Calls its first argument with arguments rebuilt from the leaves; it fills in leaves that are not tensors.
        automatic: Whether layers are the units.
        batch: How the leaves were split from a batch; required to find the tensors that all microbatches share.

    Raises:
        SMPUsageError: If a step is already being traced.
    """
    if tracer() is not None:
        raise SMPUsageError("a function decorated with smp.step was called inside another one: call it outside")
    traced = _trace(body, specs, call, automatic)
    if batch is None or batch.num_pieces == 1:
        return traced.read(Invariance(), {})
    origins, invariance = traced.origins(specs, batch)
    larger_specs = batch.specs_of_whole(specs)

    def larger() -> tuple[Sequence[Any], Origins]:
        with _keeping_inputs(traced.state.models):
            other = _trace(body, larger_specs, call, automatic)
        return _leaves(other.structure), other.origins(larger_specs, batch)[0]

    shared = shared_rows_of(
        _leaves(traced.structure),
        origins,
        state=traced.state,
        larger=None if list(specs) == larger_specs else larger,
        microbatch_sizes=batch.sizes(specs),
    )
    return traced.read(invariance, shared)


@dataclass(frozen=True)
class _Traced:
    """A traced graph, and the structure that the body returned."""

    graph: MarkingGraph
    state: Tracer
    structure: object

    def captures(self) -> dict[str, Any]:
        """Return name of a placeholder -> captured tensor."""
        return {internal.op.name: external for external, internal in self.graph.captures}

    def inputs(self) -> list[Tensor]:
        """Return the placeholders of the leaves."""
        captured = self.captures()
        return [tensor for tensor in self.graph.inputs if tensor.op.name not in captured]

    def origins(self, specs: Sequence[TypeSpec | None], batch: Batch) -> tuple[Origins, Invariance]:
        """Determine which tensors depend on the batch."""
        nodes = read_nodes(self.graph)
        index, inputs = {node.name: node.index for node in nodes}, self.inputs()
        pairs = zip(inputs, batch.feeds_of_components(specs), strict=True)
        by_placeholder = {_output(index, tensor): feed for tensor, feed in pairs}
        invariance = invariance_of(self.graph, nodes, by_placeholder)
        places = {tensor.op.name: place for place, tensor in enumerate(inputs)}
        return Origins(self.graph, nodes, invariance.independent, self.captures(), places), invariance

    def read(self, invariance: Invariance, shared: Mapping[int, SharedRows]) -> Trace:
        """Convert the graph to a `Trace`.

        Args:
            invariance: Invariance of the graph as traced; ops added since then come last.
            shared: Replacements for some leaves, by index.
        """
        graph = self.graph
        nodes = read_nodes(graph)
        index = {node.name: node.index for node in nodes}
        outputs = iter(graph.outputs)
        results = []
        for place, leaf in enumerate(_leaves(self.structure)):
            if not _is_tensor(leaf):
                results.append(Result(None, (), leaf))
                continue
            spec = _spec_of(leaf)
            parts = [_skip_identity(next(outputs)) for _ in tf.nest.flatten(spec, expand_composites=True)]
            results.append(_result(spec, parts, shared.get(place), index))
        return Trace(
            graph=graph,
            nodes=nodes,
            tracer=self.state,
            inputs={_output(index, tensor): place for place, tensor in enumerate(self.inputs())},
            captures={_output(index, internal): external for external, internal in graph.captures},
            results=results,
            structure=self.structure,
            effects=[index[op.name] for op in graph.control_outputs],
            invariance=invariance,
            sums=[(_output(index, part), _output(index, total)) for part, total in self.state.sums],
        )


def _trace(
    body: Callable[..., Any],
    specs: Sequence[TypeSpec | None],
    call: Callable[[Callable[..., Any], list[Any]], Any],
    automatic: bool,
) -> _Traced:
    converted = py_func_from_autograph(body)
    returned: list[Any] = []

    def traced(*tensors: Tensor) -> list[Tensor]:
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
    return _Traced(graph, state, returned[0])


def _result(spec: TypeSpec, parts: Sequence[Tensor], shared: SharedRows | None, index: Mapping[str, int]) -> Result:
    if shared is None:
        return Result(spec, tuple(_output(index, part) for part in parts))
    outputs = tuple(_output(index, part) for part in tf.nest.flatten(shared.slices, expand_composites=True))
    if shared.count is None or isinstance(shared.count, int):
        rows = ALL_ROWS if shared.count is None else shared.count
        return Result(spec, outputs, shared_rows=rows, origin=shared.origin)
    count = _output(index, shared.count)
    return Result(spec, (*outputs, count), shared_rows=count, origin=shared.origin)


@contextmanager
def _keeping_inputs(models: Sequence[KerasModel]) -> Generator[None]:
    """Preserve the inputs that models have recorded for `save_model`: this trace must not change them."""
    before = [model.__dict__.get("_smp_inputs") for model in models]
    try:
        yield
    finally:
        for model, inputs in zip(models, before, strict=True):
            model.__dict__["_smp_inputs"] = inputs


# --- tensors ----------------------------------------------------------------------------------------------------------


def _output(index: Mapping[str, int], tensor: Tensor) -> Output:
    return index[tensor.op.name], tensor.value_index


def _skip_identity(tensor: Tensor) -> Tensor:
    # func_graph_from_py_func adds an Identity to each output, which would be placed elsewhere than its gradient.
    return tensor.op.inputs[0] if tensor.op.type == "Identity" and tensor.op.name.startswith("Identity") else tensor


def _leaves(structure: object) -> list[Any]:
    return tf.nest.flatten(structure)


def _is_tensor(leaf: object) -> bool:
    return tf.is_tensor(leaf) or resource_variable_ops.is_resource_variable(leaf)


def _as_tensor(leaf: Any) -> Tensor:
    variable = tensorflow_variable(leaf)
    return tf.convert_to_tensor(variable) if resource_variable_ops.is_resource_variable(variable) else leaf


def _spec_of(leaf: Any) -> TypeSpec:
    # Do not read the variable: its value may be on another rank.
    variable = tensorflow_variable(leaf)
    if resource_variable_ops.is_resource_variable(variable):
        return tf.TensorSpec(variable.shape, variable.dtype)
    return tf.type_spec_from_value(leaf)
