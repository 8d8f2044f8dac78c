"""Walk the graph of a SavedModel."""

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["called_functions", "node_name", "nodes_behind"]


def nodes_behind(tensors: Sequence[str], graph: Any) -> Iterator[Any]:
    """Yield the nodes that compute these tensors, and all nodes of the functions that they call, each once.

    Args:
        tensors: Names of tensors or of operations.
        graph: A GraphDef.
    """
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    names = [node_name(tensor) for tensor in tensors]
    seen: set[str] = set()
    called: list[str] = []
    while names:
        name = names.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        names += map(node_name, nodes[name].input)
        called += called_functions(nodes[name])
        yield nodes[name]
    entered: set[str] = set()
    while called:
        name = called.pop()
        if name in entered or name not in functions:
            continue
        entered.add(name)
        for node in functions[name].node_def:
            called += called_functions(node)
            yield node


def node_name(tensor: str) -> str:
    """Return the name of the node that computes a tensor, or that an edge of the graph comes from."""
    return tensor.removeprefix("^").partition(":")[0]


def called_functions(node: Any) -> Iterator[str]:
    """Yield the names of the functions that a node calls, e.g. a condition or a loop."""
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            for function in value.list.func:
                yield function.name
