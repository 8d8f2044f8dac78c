"""The traced graph as plain Python objects, for assignment, segmentation and scheduling."""

import heapq
import math
from dataclasses import dataclass

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Graph, GraphOperation, Tensor

Output = tuple[int, int]
"""(index of a node, number of its output)."""


@dataclass(frozen=True)
class Node:
    """One op of the graph."""

    index: int
    """Its index in the list of `read_nodes`, which is in topological order."""
    name: str
    type: str
    inputs: tuple[Output, ...]
    controls: tuple[int, ...]
    """Nodes that must run before, by control dependencies."""
    handles: tuple[Output, ...]
    """The resource handles among its inputs."""
    work: float
    """An estimate of its time in microseconds; only ratios matter."""
    stateful: bool


def read_nodes(graph: Graph) -> list[Node]:
    """Return the ops of `graph` in topological order.

    Creation order is not topological: the gradient of a loop adds inputs to the loop's op.

    Args:
        graph: A FuncGraph.

    Returns:
        Nodes whose inputs come before them.
    """
    ops = _sorted(list(graph.get_operations()))
    index = {op.name: place for place, op in enumerate(ops)}
    return [
        Node(
            index=place,
            name=op.name,
            type=op.type,
            inputs=tuple((index[tensor.op.name], tensor.value_index) for tensor in op.inputs),
            controls=tuple(index[control.name] for control in op.control_inputs),
            handles=tuple(
                (index[tensor.op.name], tensor.value_index) for tensor in op.inputs if tensor.dtype == tf.resource
            ),
            work=_work(op),
            stateful=op.op_def.is_stateful,
        )
        for place, op in enumerate(ops)
    ]


def _sorted(ops: list[GraphOperation]) -> list[GraphOperation]:
    created = {op.name: number for number, op in enumerate(ops)}
    waiting: dict[int, int] = {}
    users: dict[int, list[int]] = {}
    for number, op in enumerate(ops):
        before = {created[tensor.op.name] for tensor in op.inputs} | {created[c.name] for c in op.control_inputs}
        waiting[number] = len(before)
        for source in before:
            users.setdefault(source, []).append(number)
    ready = [number for number, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(ops[number])
        for user in users.get(number, ()):
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    return order


_FREE = frozenset({"Const", "Placeholder", "Identity", "NoOp", "ReadVariableOp", "Shape", "StopGradient"})


def _work(op: GraphOperation) -> float:
    if op.type in _FREE:
        return 0.0
    elements = sum(_elements(tensor) for tensor in op.outputs)
    if op.type in ("MatMul", "BatchMatMul", "BatchMatMulV2", "Einsum"):
        return 1.0 + elements * _contracted(op) / 10_000
    if op.type.startswith(("Conv", "DepthwiseConv")):
        return 1.0 + _products_of_convolution(op) / 10_000
    if op.type in ("While", "StatelessWhile"):
        return 1_000.0
    return 1.0 + elements / 1_000


def _elements(tensor: Tensor) -> int:
    return math.prod(size or 1 for size in tensor.shape.as_list()) if tensor.shape.rank is not None else 1


def _contracted(op: GraphOperation) -> float:
    # |A| |B| / |C| is the square of the contracted size for matrices, up to batch dimensions.
    left, right = (_elements(tensor) for tensor in list(op.inputs)[:2]) if len(op.inputs) > 1 else (1, 1)
    return math.sqrt(max(1.0, left * right / max(1, _elements(op.outputs[0]))))


def _products_of_convolution(op: GraphOperation) -> float:
    """Return the multiplications of a convolution or its gradients: per result, as many as the filter per channel."""
    inputs = list(op.inputs)
    if not op.type.endswith(("BackpropInput", "BackpropFilter", "BackpropInputV2", "BackpropFilterV2")):
        result, kernel = op.outputs[0], inputs[1]
    else:  # the last input is the gradient of the result
        result, kernel = inputs[2], (inputs[1] if "BackpropInput" in op.type else op.outputs[0])
    channels_first = op.node_def.attr["data_format"].s.startswith((b"NC", b"CHANNELS_FIRST"))
    channels = result.shape[1 if channels_first else -1] if result.shape.rank else None
    return _elements(result) * _elements(kernel) / (channels or 1)
