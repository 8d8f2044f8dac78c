"""Inline the calls of a traced function, which makes one flat graph of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import function_def_to_graph

from tidemill_tensorflow.compiler.graphs.nodes import FlatGraph, node_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

KERAS_STEP = "one_step_on_data"
"""Text in the names of the functions that Keras 3 compiles by its own choice."""

_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_DROPPED = ("_class", "_output_shapes", "_gradient_op_type")


def flatten(concrete: ConcreteFunction, *, kept: str | None = None) -> FlatGraph:
    """Return the flat graph of a ConcreteFunction.

    Calls of functions that the script compiles (``jit_compile=True``) are not inlined. A Keras step is: if the script
    had chosen XLA for the model, the function would not be flattened at all, so Keras has chosen by itself.

    Args:
        kept: Text in the names of functions whose calls are not inlined either.
    """
    graph_def = concrete.graph.as_graph_def()
    functions = {function.signature.name: function for function in graph_def.library.function}
    nodes = list(graph_def.node)
    outputs = [tensor.name for tensor in concrete.graph.outputs]
    while True:
        calls = [node for node in nodes if _is_inlined(node, functions, kept)]
        if not calls:
            break
        nodes, outputs = _inline(nodes, outputs, {node.name: node for node in calls}, functions)
    flat = graph_pb2.GraphDef(versions=graph_def.versions)
    flat.library.function.extend(_reachable(nodes, functions))
    for node in nodes:
        for name in _DROPPED:
            node.attr.pop(name, None)
        flat.node.add().CopyFrom(node)
    inputs = tuple(tensor.op.name for tensor in concrete.graph.inputs)
    return FlatGraph(flat, inputs, tuple(outputs))


def _reachable(nodes: Iterable[NodeDef], functions: Mapping[str, FunctionDef]) -> list[FunctionDef]:
    """Return the functions that the nodes call directly or indirectly."""
    found: dict[str, FunctionDef] = {}
    waiting = list(nodes)
    while waiting:
        values = waiting.pop().attr.values()
        for name in [each.name for value in values for each in (value.func, *value.list.func)]:
            if name in functions and name not in found:
                found[name] = functions[name]
                waiting += functions[name].node_def
    return list(found.values())


def _is_inlined(node: NodeDef, functions: dict[str, FunctionDef], kept: str | None) -> bool:
    if node.op in _CALLS and (kept is None or kept not in node.attr["f"].func.name):
        function = functions.get(node.attr["f"].func.name)
        if function is None:
            return False
        flags = (node.attr, function.attr)
        is_compiled = any("_XlaMustCompile" in attrs and attrs["_XlaMustCompile"].b for attrs in flags)
        return not is_compiled or KERAS_STEP in function.signature.name
    return False


def _inline(
    nodes: list[NodeDef], outputs: list[str], calls: dict[str, NodeDef], functions: dict[str, FunctionDef]
) -> tuple[list[NodeDef], list[str]]:
    results: dict[str, list[str]] = {}
    controls: dict[str, list[str]] = {}
    inlined: list[NodeDef] = []
    for node in nodes:
        if node.name not in calls:
            inlined.append(node)
            continue
        body, results[node.name], controls[node.name] = _body(node, functions[node.attr["f"].func.name])
        inlined += body

    def resolve(reference: str) -> list[str]:
        node = node_of(reference)
        if node not in calls:
            return [reference]
        if reference.startswith("^"):
            return [part for name in controls[node] for part in resolve(name)]
        index = int(reference.partition(":")[2] or 0)
        return resolve(results[node][index])

    for node in inlined:
        resolved = [part for reference in node.input for part in resolve(reference)]
        data = [part for part in resolved if not part.startswith("^")]
        control = dict.fromkeys(part for part in resolved if part.startswith("^"))
        del node.input[:]
        node.input.extend([*data, *control])
    return inlined, [resolve(output)[0] for output in outputs]


def _body(call: NodeDef, function: FunctionDef) -> tuple[list[NodeDef], list[str], list[str]]:
    """Return the inlined nodes of a call, its result tensors, and the nodes that replace control inputs on the call."""
    graph_def, flat_names = function_def_to_graph.function_def_to_graph_def(function)
    arguments = {argument.name: call.input[index] for index, argument in enumerate(function.signature.input_arg)}
    waited = [reference for reference in call.input if reference.startswith("^")]

    def rename(reference: str) -> str:
        name = node_of(reference)
        if name in arguments:
            return "^" + node_of(arguments[name]) if reference.startswith("^") else arguments[name]
        if reference.startswith("^"):
            return f"^{call.name}/{name}"
        return f"{call.name}/{reference}"

    body = []
    for node in graph_def.node:
        if node.name in arguments:
            continue
        renamed = [rename(reference) for reference in node.input]
        node.name = f"{call.name}/{node.name}"
        del node.input[:]
        node.input.extend([*renamed, *(name for name in waited if name not in renamed)])
        body.append(node)
    results = []
    for argument in function.signature.output_arg:
        flat = function.ret[argument.name]
        results.append(rename(flat_names.get(flat, flat)))
    controls = [f"^{call.name}/{name}" for name in function.control_ret.values()]
    controls += ["^" + node_of(result) for result in results]
    return body, results, list(dict.fromkeys(controls + waited))
