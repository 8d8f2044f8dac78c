"""Turn sizes that the gradient of a loop reads from lists into constants, which XLA needs.

A loop stores sizes of its tensors in lists, one element per iteration, for its gradient. For XLA, an element of a list
is no constant. If the shapes of all tensors up to the end of the loop follow from the shapes of the step's arguments,
then so do these sizes, and a run of the loop shows them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.eager import context

from tidemill_tensorflow.compiler.graphs.nodes import FlatGraph, Region, full_name, node_of, reach, region_of
from tidemill_tensorflow.compiler.graphs.random_numbers import with_kernels
from tidemill_tensorflow.compiler.graphs.shape_rules import shapes_follow_from_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.core.framework.tensor_pb2 import TensorProto

_LOOPS = frozenset({"While", "StatelessWhile"})
_SIZES = frozenset({"Shape", "Size", "Rank"})


@dataclass(frozen=True)
class SizeList:
    """List of sizes that one loop fills and another one, which computes gradients, empties.

    Attributes:
        tensor: The list, an output ``loop:k`` of the first loop.
        dtype: Type of the sizes.
        loop: Name of the second loop.
        pop: Name of the node in the body of this loop that takes the last element.
    """

    tensor: str
    dtype: tf.DType
    loop: str
    pop: str


def size_lists(graph_def: GraphDef) -> list[SizeList]:
    """Return the lists of sizes between the loops of a flat graph."""
    nodes = {node.name: node for node in graph_def.node}
    functions = {function.signature.name: function for function in graph_def.library.function}
    found = []
    for node in graph_def.node:
        if node.op not in _LOOPS:
            continue
        body = functions[node.attr["body"].func.name]
        for index, argument in enumerate(body.signature.input_arg):
            pop = _only_user(body, argument.name, "TensorListPopBack")
            filled = _origin(nodes, full_name(node.input[index]))
            if pop is None or filled is None:
                continue
            loop = nodes[node_of(filled)]
            if _is_filled_with_sizes(functions[loop.attr["body"].func.name], int(filled.partition(":")[2])):
                dtype = tf.as_dtype(pop.attr["element_dtype"].type)
                found.append(SizeList(filled, dtype, node.name, pop.name))
    return found


def _origin(nodes: Mapping[str, NodeDef], tensor: str) -> str | None:
    """Return the output of a loop that a tensor is, directly or through identities; None for other tensors."""
    node = nodes.get(node_of(tensor))
    while node is not None and node.op == "Identity":
        tensor = full_name(node.input[0])
        node = nodes.get(node_of(tensor))
    return tensor if node is not None and node.op in _LOOPS else None


def _only_user(function: FunctionDef, name: str, op: str) -> NodeDef | None:
    """Return the node of a function that uses an argument, if it is the only one and has a certain op."""
    users = [node for node in function.node_def if any(_of(each) == name for each in node.input)]
    return users[0] if len(users) == 1 and users[0].op == op else None


def _is_filled_with_sizes(body: FunctionDef, index: int) -> bool:
    """Return whether a loop's body adds one size per iteration to the list that is its argument with this index."""
    push = _only_user(body, body.signature.input_arg[index].name, "TensorListPushBack")
    by_name = {node.name: node for node in body.node_def}
    if push is None or _of(body.ret[body.signature.output_arg[index].name]) != push.name:
        return False
    value = by_name.get(_of(push.input[1]))
    return value is not None and value.op in _SIZES


def _of(reference: str) -> str:
    """Return the node name or argument name of a reference inside a function: ``x`` for ``x:output:0`` and ``^x``."""
    return reference.lstrip("^").partition(":")[0]


def loops_of(flat: FlatGraph, step: Region, lists: Sequence[SizeList]) -> Region | None:
    """Return the part of a step up to the loops that fill lists of sizes, with the lists among its outputs.

    None if there are no such lists, or if their sizes may depend on values.

    Args:
        lists: Result of `size_lists` for the step.
    """
    if not lists:
        return None
    nodes = {node.name: node for node in flat.graph_def.node}
    inputs = {name: [node_of(reference) for reference in node.input] for name, node in nodes.items()}
    names = reach([node_of(each.tensor) for each in lists], inputs) & {node.name for node in step.graph_def.node}
    wanted = graph_pb2.GraphDef().node.add(input=sorted({each.tensor for each in lists}))
    region = region_of(flat, nodes, names, wanted_by=[wanted])
    return region if shapes_follow_from_inputs(with_kernels(region.graph_def)) else None


def sizes_of(lists: Sequence[SizeList], values: Mapping[str, tf.Tensor]) -> dict[SizeList, np.ndarray] | None:
    """Return the size in each list; None if a list is empty, or if its sizes differ.

    Args:
        values: Their values after the loops, by tensor.
    """
    found = {}
    for each in lists:
        given = {"input_handle": values[each.tensor], "element_shape": tf.constant(-1), "element_dtype": each.dtype}
        try:
            stacked = tf.raw_ops.TensorListStack(**given).numpy()
        except tf.errors.OpError:
            return None
        if len(stacked) == 0 or (stacked != stacked[0]).any():
            return None
        found[each] = stacked[0]
    return found


def with_sizes(graph_def: GraphDef, sizes: Mapping[SizeList, np.ndarray]) -> GraphDef:
    """Return a flat graph in which sizes are constants, and not elements of lists."""
    changed = type(graph_def)()
    changed.CopyFrom(graph_def)
    functions = {function.signature.name: function for function in changed.library.function}
    for node in changed.node:
        own = {each.pop: (each.dtype, size) for each, size in sizes.items() if each.loop == node.name}
        if not own:
            continue
        # Loops may share a body, and TensorFlow keeps functions by name: other sizes need another name.
        text = repr(sorted((pop, size.tolist()) for pop, (_, size) in own.items()))
        name = f"{node.attr['body'].func.name}_sized_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if name not in functions:
            functions[name] = changed.library.function.add()
            functions[name].CopyFrom(functions[node.attr["body"].func.name])
            functions[name].signature.name = name
            for pop, (dtype, size) in own.items():
                _replace(functions[name], pop, tf.make_tensor_proto(size, dtype))
            context.context().add_function_def(functions[name])  # loops find their bodies there
        node.attr["body"].func.name = name
    return changed


def _replace(body: FunctionDef, pop: str, size: TensorProto) -> None:
    """Replace the element that a node takes from a list by a constant."""
    constant = f"{pop}/tidemill_size"
    element, replaced = f"{pop}:tensor:0", f"{constant}:output:0"
    for node in body.node_def:
        inputs = [replaced if reference == element else reference for reference in node.input]
        del node.input[:]
        node.input.extend(inputs)
    for name in body.ret:
        if body.ret[name] == element:
            body.ret[name] = replaced
    node = body.node_def.add(name=constant, op="Const")
    node.attr["dtype"].type = size.dtype
    node.attr["value"].tensor.CopyFrom(size)
