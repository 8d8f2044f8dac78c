"""Separate the random numbers of a step from the rest of it, so that TensorFlow's kernels draw them and not XLA.

XLA takes about three times as long as TensorFlow's kernels for the same numbers. If the shapes of a step's arguments
are known, the shapes of its random numbers are known too. Then the ops that draw can run before the compiled ops,
together with the ops that compute their seeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.framework import tensor_util
from tensorflow.python.ops import handle_data_util

from tidemill_tensorflow.compiler.graphs.nodes import FlatGraph, Region, full_name, has_effect, node_of, region_of
from tidemill_tensorflow.compiler.graphs.random_numbers import is_replaced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_SEED_OPS = frozenset({"ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp"})
_SEED_TYPES = frozenset(each.as_datatype_enum for each in (tf.uint32, tf.int32, tf.int64, tf.uint64))
"""Ops on variables with seeds, and the types of such variables."""


@dataclass(frozen=True)
class Separated:
    """Two regions of a step. The names of their inputs are tensors of the step's graph.

    Attributes:
        noise: Draws the random numbers.
        rest: Everything else; it reads the outputs of `noise`.
    """

    noise: Region
    rest: Region


def separate(step: Region, arguments: Sequence[tf.Tensor]) -> Separated | None:
    """Separate the random numbers of a step.

    Args:
        step: The step, after `replace_random_ops`.
        arguments: Its arguments in one run. Only their shapes count, and the variables behind handles.

    Returns:
        The regions; None if there are no random numbers, if the shape of some is unknown, or if their seeds depend on
        more than variables for seeds.
    """
    nodes = {node.name: node for node in step.graph_def.node}
    draws = [name for name, node in nodes.items() if is_replaced(node)]
    shapes = _shapes(step, arguments, {name: nodes[name].input[0] for name in draws})
    if not draws or any(shape is None for shape in shapes.values()):
        return None
    names = _with_seeds(nodes, draws)
    if names is None:
        return None
    flat = FlatGraph(_with_shapes(step.graph_def, shapes), step.inputs, step.outputs)
    nodes = {node.name: node for node in flat.graph_def.node}
    names |= {_shape_of(name) for name in draws}
    others = set(nodes) - names
    return Separated(
        noise=region_of(flat, nodes, names, wanted_by=[nodes[name] for name in others]),
        rest=region_of(flat, nodes, others, wanted_by=[]),
    )


def _shapes(step: Region, arguments: Sequence[tf.Tensor], wanted: Mapping[str, str]) -> dict[str, np.ndarray | None]:
    """Return the values of tensors by key; None if a value does not follow from the shapes of the arguments."""
    with tf.Graph().as_default():
        known = {}
        for index, argument in enumerate(arguments):
            placeholder = tf.compat.v1.placeholder(argument.dtype, argument.shape)
            handle_data_util.copy_handle_data(argument, placeholder)
            known[f"input_{index}:0"] = placeholder
        references = list(wanted.values())
        found = tf.graph_util.import_graph_def(step.graph_def, known, [full_name(each) for each in references], name="")
        return {key: tensor_util.try_evaluate_constant(tensor) for key, tensor in zip(wanted, found or ())}


def _with_seeds(nodes: Mapping[str, NodeDef], draws: list[str]) -> set[str] | None:
    """Return the ops that draw and all ops on which their seeds depend; None if these are not of seeds alone.

    All ops on a variable with a seed belong together, since their order counts.
    """
    users: dict[str, list[str]] = {}
    for node in nodes.values():
        for reference in node.input:
            users.setdefault(reference.partition(":")[0], []).append(node.name)
    found: set[str] = set()
    waiting = list(draws)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        node = nodes[name]
        inputs = node.input[1:] if name in draws else node.input
        if has_effect(node.op):
            if node.op not in _SEED_OPS:
                return None
            if node.attr["dtype"].type not in _SEED_TYPES:
                return None
            waiting += users[node.input[0].partition(":")[0]]
        waiting += [node_of(each) for each in inputs if not each.startswith("^") and node_of(each) in nodes]
    return found


def _with_shapes(graph_def: GraphDef, shapes: Mapping[str, np.ndarray | None]) -> GraphDef:
    """Return the graph with constants as the shapes of the random numbers."""
    changed = type(graph_def)()
    changed.CopyFrom(graph_def)
    for node in list(changed.node):
        if node.name in shapes:
            value = tf.make_tensor_proto(shapes[node.name])
            constant = changed.node.add(name=_shape_of(node.name), op="Const")
            constant.attr["dtype"].type = value.dtype
            constant.attr["value"].tensor.CopyFrom(value)
            node.input[0] = constant.name
    return changed


def _shape_of(name: str) -> str:
    return f"{name}/tidemill_shape"
