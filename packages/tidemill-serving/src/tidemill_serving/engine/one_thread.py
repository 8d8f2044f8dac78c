"""Recognize models so small that several threads inside one operation cost more than they save.

TensorFlow splits a matrix product over all cores. For a small product, waking the threads, waiting for the last one and
reading the weights into several caches takes longer than the product: a perceptron of 0.7 million weights used 1.5
times the CPU time with two threads, and answered a quarter fewer requests per second. TensorFlow fixes the number of
threads when it starts, before a model can be loaded and measured. So this module inspects the graph: a model qualifies
if it contains only operations of dense networks, whose work per row is bounded by the number of weights.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tidemill_serving.engine.graph import read_meta_graph
from tidemill_serving.engine.wheel import Wheel, open_wheel

__all__ = ["suffices_one_thread"]

_MAX_WEIGHTS = 2_000_000  # 32 rows then take about a millisecond of one core
_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
# Without Reshape, which turns the positions of a sequence into rows, so that one request has many.
# fmt: off
_DENSE_OPS = _CALLS | _VARIABLES | {
    "Add", "AddN", "AddV2", "BiasAdd", "Cast", "ConcatV2", "Const", "Elu", "Erf", "Erfc", "Exp", "ExpandDims",
    "Identity", "IdentityN", "LeakyRelu", "Log", "Log1p", "LogSoftmax", "MatMul", "Maximum", "Minimum", "Mul", "Neg",
    "NoOp", "Pack", "Placeholder", "Pow", "ReadVariableOp", "RealDiv", "Reciprocal", "Relu", "Relu6", "Rsqrt", "Selu",
    "Sigmoid", "Softmax", "Softplus", "Softsign", "Sqrt", "Square", "SquaredDifference", "Squeeze", "Sub", "Tanh",
}
# fmt: on


def suffices_one_thread(paths: Sequence[Path]) -> bool:
    """Return whether all these SavedModels are small dense networks.

    Args:
        paths: Directories of the SavedModels.

    Raises:
        StartFailed: A SavedModel cannot be read, or TensorFlow is not installed.
    """
    try:
        wheel = open_wheel()
    except ImportError:
        return False
    return all(_is_small(path, wheel) for path in paths)


def _is_small(path: Path, wheel: Wheel) -> bool:
    meta_graph = read_meta_graph(path / "saved_model.pb", wheel=wheel)
    outputs = [
        output.name for definition in meta_graph.signature_def.values() for output in definition.outputs.values()
    ]
    weights = 0
    for node in _nodes_behind(outputs, meta_graph.graph_def):
        if node.op not in _DENSE_OPS:
            return False
        if node.op in _VARIABLES:
            weights += _size(node.attr["shape"].shape)
        elif node.op == "Const":
            weights += _size(node.attr["value"].tensor.tensor_shape)
    return weights <= _MAX_WEIGHTS


def _nodes_behind(outputs: Sequence[str], graph: Any) -> Iterator[Any]:
    """Yield the nodes that compute these tensors, including those in called functions."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    names = [_node_name(output) for output in outputs]
    seen: set[str] = set()
    while names:
        name = names.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        names += map(_node_name, nodes[name].input)
        yield from _with_functions(nodes[name], functions, seen)


def _with_functions(node: Any, functions: dict[str, Any], seen: set[str]) -> Iterator[Any]:
    yield node
    if node.op not in _CALLS:
        return
    name = node.attr["f"].func.name
    if name in functions and f"function {name}" not in seen:
        seen.add(f"function {name}")
        for inner in functions[name].node_def:
            yield from _with_functions(inner, functions, seen)


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _size(shape: Any) -> int:
    """Return the number of elements; an unknown shape counts as too large."""
    sizes = [dimension.size for dimension in shape.dim]
    return _MAX_WEIGHTS + 1 if shape.unknown_rank or min(sizes, default=0) < 0 else math.prod(sizes)
