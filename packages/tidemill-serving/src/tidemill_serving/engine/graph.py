"""Walk the graph of a SavedModel."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def nodes_behind(tensors: Sequence[str], graph: Any) -> Iterator[Any]:
    """Yield the nodes that compute these tensors, and all nodes of the functions that they call, each once.

    Args:
        tensors: Names of tensors or of operations.
        graph: A GraphDef.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    called: list[str] = []
    for node in outer_nodes_behind(tensors, {node.name: node for node in graph.node}):
        called += called_functions(node)
        yield node
    entered: set[str] = set()
    while called:
        name = called.pop()
        if name in entered or name not in functions:
            continue
        entered.add(name)
        for node in functions[name].node_def:
            called += called_functions(node)
            yield node


def outer_nodes_behind(tensors: Sequence[str], nodes: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the nodes of a graph that compute these tensors, without those of called functions, each once.

    Args:
        tensors: Names of tensors or of operations.
    """
    names = [node_name(tensor) for tensor in tensors]
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        names += map(node_name, nodes[name].input)
        yield nodes[name]


def node_name(tensor: str) -> str:
    """Return the name of the node that computes a tensor, or that an edge of the graph comes from.

    Args:
        tensor: For example ``dense/MatMul:0`` or ``^init``.

    Returns:
        For example ``dense/MatMul``.
    """
    return tensor.removeprefix("^").partition(":")[0]


def called_functions(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a node calls, e.g. a condition or a loop.

    Args:
        node: A NodeDef.

    Yields:
        Names of functions of the graph's library, repeated if called twice.
    """
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            for function in value.list.func:
                yield function.name
