"""The flat graph of a whole function, in which the draws of stateful random ops can be counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from tidemill_tensorflow.compiler import functions, groups
from tidemill_tensorflow.compiler.devices import devices_of, place_beside_variables
from tidemill_tensorflow.compiler.end_of_data import EndOfData
from tidemill_tensorflow.compiler.flat_graphs import FlatGraph, flatten, node_of
from tidemill_tensorflow.compiler.random_numbers import SIZES, STATEFUL, replace_random_ops, with_kernels
from tidemill_tensorflow.compiler.regions import NotCompilable, is_of_gradient, uncut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidemill_tensorflow.compiler.regions import Region

__all__ = ["Unsplit", "build_plain", "unsplit"]

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
    sources: Mapping[str, Any]
    name: str

    def plain(self) -> Callable[..., list[Any]]:
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


def unsplit(concrete: Any, *, name: str, communicates: bool = False, is_alone: bool = True) -> Unsplit:
    """Return the flat graph of a ConcreteFunction, with random ops that draw the same numbers in all variants.

    Args:
        concrete: The function.
        name: Prefix of the names of functions.
        communicates: See `parts.take_apart`.
        is_alone: See `parts.take_apart`.

    Raises:
        NotCompilable: XLA would draw other random numbers, or the processes of the job would differ.
    """
    flat = flatten(concrete)
    _refuse_distribution(flat.graph_def, communicates=communicates, is_alone=is_alone and not communicates)
    if len(devices_of(flat.graph_def.node)) > 1:
        place_beside_variables(concrete, flat.graph_def)
    if not is_alone and not communicates and _applies_gradients(flat.graph_def):
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


def build_plain(region: Region, sources: Mapping[str, Any], *, name: str, inline: bool = True) -> Any:
    """Return a region as a callable of TensorFlow's kernels. See `functions.build`."""
    own = replace(region, graph_def=with_kernels(region.graph_def))
    return functions.build(own, sources, xla=False, name=name, inline=inline)


def _refuse_distribution(graph_def: Any, *, communicates: bool, is_alone: bool) -> None:
    devices = devices_of(graph_def.node)
    if len(devices) > 1 and not is_alone:
        raise NotCompilable(
            f"each of several processes runs the step on several devices ({', '.join(devices)}): not compiled yet"
        )
    for node in graph_def.node:
        if groups.communicates(node) and not communicates and len(devices) < 2:
            raise NotCompilable(
                f"the step communicates ({node.op}) with a part of the processes, or in a way that is not known"
            )


def _applies_gradients(graph_def: Any) -> bool:
    """Return whether a flat graph writes values that depend on gradients into variables."""
    nodes = {node.name: node for node in graph_def.node}
    waiting = [
        node.name
        for node in graph_def.node
        if node.op.startswith("Assign") and node.op.endswith(("VariableOp", "Variable"))
    ]
    if any(node.op.startswith("ResourceApply") for node in graph_def.node):
        return True
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        if is_of_gradient(name):
            return True
        waiting += [node_of(reference) for reference in nodes[name].input if not reference.startswith("^")]
    return False
