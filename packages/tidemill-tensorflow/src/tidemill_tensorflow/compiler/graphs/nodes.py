"""Nodes of graphs: flat graphs, regions of them, and how their nodes depend on each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import op_def_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import tensorflow as tf
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

    TensorFunction = Callable[..., list[tf.Tensor]]
    """Callable that takes and returns flat lists of tensors."""

COMMUNICATION = ("Collective", "Horovod", "Nccl")
"""Name prefixes of the ops in which other processes take part."""


class NotCompilable(Exception):
    """XLA cannot compile this step. The message names the op and the reason."""


@dataclass(frozen=True)
class FlatGraph:
    """Graph of a function whose calls are inlined.

    Attributes:
        graph_def: The GraphDef; loop bodies and branches stay functions of its library.
        inputs: Names of the placeholders, in the order of the function's flat arguments (captures last).
        outputs: Tensor names ``node:k``, in the order of the function's flat results.
    """

    graph_def: GraphDef
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Region:
    """Part of a flat graph.

    Attributes:
        graph_def: The nodes of the region. Inputs from outside are named ``input_k``, without a node of that name.
        inputs: The tensors ``node:k`` of the flat graph behind ``input_0``, ``input_1`` and so on.
        outputs: The tensors of the flat graph that the region computes for its users.
    """

    graph_def: GraphDef
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Regions:
    """The three regions of a graph: before, in and after the compiled part; the outer ones may have no nodes."""

    before: Region
    step: Region
    after: Region


def nodes_of(concrete: ConcreteFunction) -> Iterator[NodeDef]:
    """Yield the nodes of a function and of all functions in its library."""
    graph_def = concrete.graph.as_graph_def()
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def


def is_training_step(concrete: ConcreteFunction) -> bool:
    """Return whether a function computes gradients or applies them."""
    return any(node.op.startswith("ResourceApply") or is_of_gradient(node.name) for node in nodes_of(concrete))


def is_of_gradient(name: str) -> bool:
    """Return whether a gradient tape added a node, as its name shows."""
    return any(scope in name for scope in ("gradient_tape/", "gradients/"))


def communicates(node: NodeDef) -> bool:
    """Return whether a node communicates with other processes."""
    return bool(node.op.startswith(COMMUNICATION))


def has_effect(op: str) -> bool:
    """Return whether an op reads or writes state."""
    definition = op_def_registry.get(op)
    return definition is not None and bool(definition.is_stateful)


def is_read(node: NodeDef) -> bool:
    """Return whether a node reads a variable."""
    return bool(node.op == "ReadVariableOp")


def is_write(node: NodeDef) -> bool:
    """Return whether a node changes the state behind its first input."""
    return bool(has_effect(node.op) and not is_read(node) and node.input and not node.input[0].startswith("^"))


def node_of(reference: str) -> str:
    """Return the node name of an input reference: ``x`` for ``x:1`` and for ``^x``."""
    return reference.lstrip("^").split(":")[0]


def data_inputs(node: NodeDef) -> list[str]:
    """Return the names of the nodes whose values a node uses."""
    return [node_of(reference) for reference in node.input if not reference.startswith("^")]


def full_name(reference: str) -> str:
    """Return the full name of a tensor: ``x:0`` for ``x``."""
    return reference if ":" in reference else f"{reference}:0"


def users_of(nodes: Iterable[NodeDef], *, control: bool = False) -> dict[str, list[str]]:
    """Return the names of the nodes that use each node, by data and, if `control` is set, by control inputs."""
    users: dict[str, list[str]] = {}
    for node in nodes:
        for name in map(node_of, node.input) if control else data_inputs(node):
            users.setdefault(name, []).append(node.name)
    return users


def reach(start: Iterable[str], edges: Mapping[str, list[str]]) -> set[str]:
    """Return the nodes that can be reached along edges, with those at the start."""
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += edges.get(name, ())
    return found


def uncut(flat: FlatGraph) -> Region:
    """Return a flat graph as one region."""
    nodes = {node.name: node for node in flat.graph_def.node}
    return region_of(flat, nodes, set(nodes) - set(flat.inputs), wanted_by=[])


def region_of(
    flat: FlatGraph, nodes: Mapping[str, NodeDef], names: set[str], *, wanted_by: Sequence[NodeDef]
) -> Region:
    """Return the region of some nodes of a flat graph.

    Args:
        wanted_by: Nodes that read the outputs. Outputs of the graph are always outputs of the region too.
    """
    graph_def = graph_pb2.GraphDef(library=flat.graph_def.library, versions=flat.graph_def.versions)
    inputs: dict[str, str] = {}
    for node in flat.graph_def.node:
        if node.name not in names:
            continue
        own = graph_def.node.add()
        own.CopyFrom(node)
        del own.input[:]
        for reference in node.input:
            if node_of(reference) in names:
                own.input.append(reference)
            elif not reference.startswith("^"):
                own.input.append(inputs.setdefault(full_name(reference), f"input_{len(inputs)}"))
    wanted = [full_name(reference) for node in wanted_by for reference in node.input if not reference.startswith("^")]
    outputs = dict.fromkeys(name for name in [*wanted, *flat.outputs] if node_of(name) in names)
    return Region(graph_def, tuple(inputs), tuple(outputs))
