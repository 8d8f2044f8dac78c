"""The flat graph of a whole function, in which the draws of stateful random ops can be counted.

A `fit` on a data set of unknown length calls its step once more than there are batches. The iterator then has no next
element, and the call fails, but TensorFlow has run the ops that do not depend on the element. In Keras 3, these advance
the optimizer's number of iterations and the seeds of dropout. Steps in parts run the same ops (`EndOfData`), so that
they continue with the numbers of the script.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from tidemill_tensorflow.compiler.graphs import functions
from tidemill_tensorflow.compiler.graphs.devices import devices_of, place_beside_variables
from tidemill_tensorflow.compiler.graphs.flat_graphs import flatten
from tidemill_tensorflow.compiler.graphs.nodes import (
    FlatGraph,
    NotCompilable,
    Region,
    communicates,
    data_inputs,
    full_name,
    is_of_gradient,
    is_write,
    node_of,
    reach,
    region_of,
    uncut,
    users_of,
)
from tidemill_tensorflow.compiler.graphs.random_numbers import SIZES, STATEFUL, replace_random_ops, with_kernels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    from tidemill_tensorflow.compiler.graphs.nodes import TensorFunction

_DRAWN = "tidemill_drawn"


@dataclass(frozen=True)
class Unsplit:
    """A function before it is split.

    Attributes:
        flat: Its flat graph. With stateful random ops, the graph also computes the sizes of their results.
        inputs: Names of the placeholders of the flat arguments and captures, and of the state of the random ops.
        results: Tensor names of the function's flat results.
        random_ops: Number of stateful random ops.
        sources: See `functions.build`.
        name: Prefix of the names of functions.
    """

    flat: FlatGraph
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    random_ops: int
    sources: Mapping[str, tf.Tensor]
    name: str

    def plain(self) -> TensorFunction:
        """Return a plain function that does the same as the script's.

        It takes the flat arguments, the captures and the state of the stateful random ops, if there are any. It returns
        the function's flat results, and then the sizes.
        """
        region = uncut(self.flat)
        function = build_plain(region, self.sources, name=f"{self.name}_whole")
        link = functions.Link(function, region.inputs, region.outputs)
        return functions.chain([link], [f"{name}:0" for name in self.flat.inputs], self.flat.outputs)

    @cached_property
    def end_of_data(self) -> EndOfData:
        """What a call of the function does although the data has ended."""
        return EndOfData(self.flat, lambda region, name: build_plain(region, self.sources, name=f"{self.name}_{name}"))


def unsplit(concrete: ConcreteFunction, *, name: str, may_communicate: bool = False, is_alone: bool = True) -> Unsplit:
    """Return the flat graph of a ConcreteFunction, with random ops that draw the same numbers in all variants.

    Args:
        name: Prefix of the names of functions.
        may_communicate: See `parts.take_apart`.
        is_alone: See `parts.take_apart`.

    Raises:
        NotCompilable: XLA would draw other random numbers, or the processes of the job would differ.
    """
    flat = flatten(concrete)
    _refuse_distribution(flat.graph_def, may_communicate=may_communicate, is_alone=is_alone and not may_communicate)
    if len(devices_of(flat.graph_def.node)) > 1:
        place_beside_variables(concrete, flat.graph_def)
    if not is_alone and not may_communicate and _applies_gradients(flat.graph_def):
        raise NotCompilable(
            "it updates variables in a job of several processes, which have to do that alike: put the reduction of the"
            " gradients into the same function, or the update into one of its own"
        )
    random_ops = sum(node.op in STATEFUL for node in flat.graph_def.node)
    if random_ops > 0:
        placeholder = flat.graph_def.node.add(name=_DRAWN, op="Placeholder")
        placeholder.attr["dtype"].type = tf.int64.as_datatype_enum
        placeholder.attr["shape"].shape.dim.add(size=random_ops + 1)
    refused = replace_random_ops(flat.graph_def, drawn=_DRAWN if random_ops > 0 else None)
    if refused:
        raise NotCompilable(f"the random numbers of {refused[0]} would differ in XLA")
    inputs, results = (*flat.inputs, _DRAWN), flat.outputs
    if random_ops > 0:
        flat = replace(flat, inputs=inputs, outputs=(*flat.outputs, f"{SIZES}:0"))
    sources = {f"{tensor.op.name}:0": tensor for tensor in concrete.graph.inputs}
    return Unsplit(flat, inputs, results, random_ops, sources, name)


def build_plain(region: Region, sources: Mapping[str, tf.Tensor], *, name: str, inline: bool = True) -> TensorFunction:
    """Return a region as a callable of TensorFlow's kernels. See `functions.build`."""
    own = replace(region, graph_def=with_kernels(region.graph_def))
    return functions.build(own, sources, xla=False, name=name, inline=inline)


def _refuse_distribution(graph_def: GraphDef, *, may_communicate: bool, is_alone: bool) -> None:
    devices = devices_of(graph_def.node)
    if len(devices) > 1 and not is_alone:
        raise NotCompilable(
            f"each of several processes runs the step on several devices ({', '.join(devices)}): not compiled yet"
        )
    for node in graph_def.node:
        if communicates(node) and not may_communicate and len(devices) < 2:
            raise NotCompilable(
                f"the step communicates ({node.op}) with a part of the processes, or in a way that is not known"
            )


def _applies_gradients(graph_def: GraphDef) -> bool:
    """Return whether a flat graph writes values that depend on gradients into variables."""
    nodes = {node.name: node for node in graph_def.node}
    if any(node.op.startswith("ResourceApply") for node in graph_def.node):
        return True
    writes = [
        name
        for name, node in nodes.items()
        if node.op.startswith("Assign") and node.op.endswith(("VariableOp", "Variable"))
    ]
    return any(map(is_of_gradient, reach(writes, {name: data_inputs(node) for name, node in nodes.items()})))


_TAKES = frozenset({"IteratorGetNext", "IteratorGetNextSync"})
"""Ops that fail if there is no next element."""


class EndOfData:
    """What a call of a function does although the iterator has no next element.

    Args:
        build: Builds a plain callable of a region; the second argument is its name.
    """

    def __init__(self, flat: FlatGraph, build: Callable[[Region, str], TensorFunction]) -> None:
        self._slots = [f"{name}:0" for name in flat.inputs]
        nodes = {node.name: node for node in flat.graph_def.node}
        users = users_of(nodes.values(), control=True)
        waiting = reach([name for name, node in nodes.items() if node.op in _TAKES], users)
        effects = [name for name, node in nodes.items() if name not in waiting and is_write(node)]
        self._effects: tuple[TensorFunction, list[int]] | None = None
        if waiting and effects and not any(communicates(nodes[name]) for name in effects):
            region = _region(flat, nodes, effects, [])
            self._effects = build(region, "without_batch"), self._reads(region)
        self._sizes: tuple[TensorFunction, list[int], list[int]] | None = None
        sizes = [full_name(reference) for reference in nodes[SIZES].input] if SIZES in nodes else []
        own = [node_of(size) for size in sizes if node_of(size) not in waiting]
        if waiting and own:
            region = _region(flat, nodes, own, [nodes[SIZES]])
            positions = [sizes.index(output) for output in region.outputs]
            self._sizes = build(region, "sizes_without_batch"), self._reads(region), positions
        self._random_ops = len(sizes)

    def run(self, slots: Sequence[tf.Tensor]) -> None:
        """Run the ops with effects.

        Args:
            slots: The flat arguments, the captures and the state of the stateful random ops, if there are any.
        """
        if self._effects is not None:
            function, reads = self._effects
            function(*[slots[index] for index in reads])

    def sizes(self, slots: Sequence[tf.Tensor]) -> np.ndarray:
        """Return the number of values that each stateful random op draws, as `Draws.add` takes them."""
        found = np.zeros(self._random_ops, np.int64)
        if self._sizes is not None:
            function, reads, positions = self._sizes
            found[positions] = [int(size) for size in function(*[slots[index] for index in reads])]
        return found

    def _reads(self, region: Region) -> list[int]:
        return [self._slots.index(tensor) for tensor in region.inputs]


def _region(
    flat: FlatGraph, nodes: Mapping[str, NodeDef], names: Iterable[str], wanted_by: Sequence[NodeDef]
) -> Region:
    """Return the region of some nodes and of all their inputs."""
    inputs = {name: [node_of(reference) for reference in node.input] for name, node in nodes.items()}
    return region_of(flat, nodes, reach(names, inputs) - set(flat.inputs), wanted_by=wanted_by)
