"""Builds the graph of units, with costs, from a trace: the input of automatic partitioning."""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Tensor, Variable
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from smdistributed.modelparallel.tensorflow.engine.profile import LOSS, UnitTimes, scaled
from smdistributed.modelparallel.tensorflow.engine.recompute import is_backward
from smdistributed.modelparallel.tensorflow.engine.trace import Trace
from smdistributed.modelparallel.tensorflow.marks import REPLICATED
from smdistributed.modelparallel.tensorflow.partitioning import units as graph

SLOTS_PER_PARAMETER = 3
"""Two slots of the optimizer, as in Adam, and the accumulated gradient."""
_HANDED_ON = frozenset({"Identity", "StopGradient", "Reshape", "Squeeze", "ExpandDims"})
"""Ops whose result shares the memory of their input."""


@dataclass
class _Sums:
    forward: float = 0.0
    backward: float = 0.0
    ops: int = 0
    activations: dict[Output, int] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)


def unit_graph(
    trace: Trace, variables: Sequence[Variable], times: Mapping[str, UnitTimes] | None = None
) -> graph.UnitGraph:
    """Return the units of a trace with exact bytes, and measured or estimated times.

    Args:
        trace: A step traced with automatic partitioning.
        variables: The tf.Variables of the models.
        times: Times of the units that were measured; the others are estimated.
    """
    read = _Reader(trace, variables).read()
    return read if not times else _with_times(read, times)


def _with_times(estimated: graph.UnitGraph, times: Mapping[str, UnitTimes]) -> graph.UnitGraph:
    guesses = {unit.name: (unit.forward_us, unit.backward_us) for unit in estimated.units}
    known, ratio = scaled(times, guesses)
    units = [
        dataclasses.replace(unit, forward_us=known[unit.name][0], backward_us=known[unit.name][1])
        for unit in estimated.units
    ]
    loss = times.get(LOSS)
    loss_us = estimated.loss_us * ratio if loss is None else loss.forward_us + (loss.backward_us or 0.0)
    return dataclasses.replace(estimated, units=tuple(units), loss_us=loss_us)


class _Reader:
    def __init__(self, trace: Trace, variables: Sequence[Variable]) -> None:
        self.trace = trace
        self.nodes = trace.nodes
        self.tensors = {
            (node.index, number): tensor
            for node in trace.nodes
            for number, tensor in enumerate(trace.graph.get_operation_by_name(node.name).outputs)
        }
        by_handle = {id(variable.handle): variable for variable in variables}
        self.names = {id(variable): f"{place}:{variable.name}" for place, variable in enumerate(variables)}
        self.variables = {
            output: by_handle[id(external)] for output, external in trace.captures.items() if id(external) in by_handle
        }
        self.unit = [trace.tracer.units.get(node.name) for node in trace.nodes]
        self.sums: dict[str, _Sums] = defaultdict(_Sums)
        self.charged: set[int] = set()

    def read(self) -> graph.UnitGraph:
        edges: dict[tuple[str, str, Output], int] = {}
        for node in self.nodes:
            here = self.unit[node.index]
            if here is None or here == REPLICATED:
                continue
            self._add(here, node)
            edges |= {(source, here, output): self._bytes(output) for source, output in self._sources(here, node)}
        for node in self.nodes:
            if is_backward(node):
                self._keep_activations(node)
        place = {unit: number for number, unit in enumerate(self.sums)}
        return graph.UnitGraph(
            tuple(self._unit(name, sums) for name, sums in self.sums.items()),
            tuple(
                graph.Edge(source, target, size, self.nodes[output[0]].name)
                for (source, target, output), size in edges.items()
                if place[source] < place[target]  # a second call of a layer would give an edge backward
            ),
            tuple(self._outputs()),
            loss_us=sum(n.work for n in self.nodes if self.unit[n.index] in (None, REPLICATED)),
        )

    def _sources(self, here: str, node: Node) -> Iterator[tuple[str, Output]]:
        """Yield the inputs of a forward node that come from other units."""
        if is_backward(node):
            return
        for output in node.inputs:
            source = self.unit[output[0]]
            if source in (None, here, REPLICATED) or self.tensors[output].dtype == tf.resource:
                continue
            if not is_backward(self.nodes[output[0]]):
                yield str(source), output

    def _add(self, unit: str, node: Node) -> None:
        sums = self.sums[unit]
        sums.ops += 1
        if is_backward(node):
            sums.backward += node.work
        else:
            sums.forward += node.work
        for handle in node.handles:
            variable = self.variables.get(handle)
            if variable is not None:
                sums.variables[self.names[id(variable)]] = variable

    def _keep_activations(self, node: Node) -> None:
        """Charge a unit for the forward tensors that a backward op uses, which are kept until then."""
        for output in node.inputs:
            while self.nodes[output[0]].type in _HANDED_ON and self.nodes[output[0]].inputs:
                output = self.nodes[output[0]].inputs[0]
            source = self.unit[output[0]]
            kept = self.nodes[output[0]].type not in ("Const", "Placeholder", "ReadVariableOp")
            if source not in (None, REPLICATED) and kept and not is_backward(self.nodes[output[0]]):
                self.sums[source].activations[output] = self._bytes(output)

    def _unit(self, name: str, sums: _Sums) -> graph.Unit:
        mine = [variable for variable in sums.variables.values() if id(variable) not in self.charged]
        self.charged.update(map(id, mine))
        parameters = sum(_size(variable) for variable in mine)
        trained = sum(_size(variable) for variable in mine if variable.trainable)
        return graph.Unit(
            name=name,
            layer_path="" if "#" in name else name,
            forward_us=sums.forward,
            backward_us=sums.backward,
            parameter_bytes=parameters,
            slot_bytes=SLOTS_PER_PARAMETER * trained,
            activation_bytes=sum(sums.activations.values()),
            op_count=sums.ops,
            variable_count=len(mine),
            variables=frozenset(sums.variables),
        )

    def _outputs(self) -> list[graph.ModelOutput]:
        index = {node.name: node.index for node in self.nodes}
        found = []
        for name in self.trace.tracer.outputs:
            op, _, number = name.rpartition(":")
            unit = self.unit[index[op]] if op in index else None
            if unit in self.sums:
                found.append(graph.ModelOutput(unit, self._bytes((index[op], int(number)))))
        return found

    def _bytes(self, output: Output) -> int:
        return _size(self.tensors[output])


def _size(tensor: Tensor | Variable) -> int:
    count = 1
    for size in tensor.shape.as_list() if tensor.shape.rank is not None else ():
        count *= size or 1
    return count * (tensor.dtype.size or 1)
