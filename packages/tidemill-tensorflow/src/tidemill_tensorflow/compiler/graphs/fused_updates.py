"""Replace the ops of Keras's Adam by `ResourceApplyAdam`, TensorFlow's kernel that updates a variable in one pass.

Keras builds an update from about twelve ops. Each of them writes a tensor of the variable's size to memory, and the
next one reads it again. The kernel has the same formula::

    m += (1 - beta_1) * (gradient - m)
    v += (1 - beta_2) * (gradient ** 2 - v)
    variable -= rate * m / (sqrt(v) + epsilon)

Updates of another form stay as they are: other optimizers, AMSGrad, and embeddings, because Keras adds the squares of
the gradients of a row that a batch uses several times, while the kernel would square their sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.ops import handle_data_util

from tidemill_tensorflow.compiler.graphs.nodes import data_inputs, full_name, node_of, reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

_DTYPES = (tf.float32, tf.float64)
"""The kernel computes ``1 - beta_2`` from ``beta_2``. In shorter types the difference would have too few digits."""


@dataclass(frozen=True)
class _Moment:
    """Moving average of a gradient or of its square.

    Attributes:
        added: The tensor that enters the average.
        share: Weight of `added`: ``1 - beta``.
        nodes: The nodes that only this update needs, unless other nodes use them too.
    """

    handle: str
    added: str
    share: np.ndarray
    nodes: tuple[NodeDef, ...]


@dataclass(frozen=True)
class _Update:
    """Update of one variable by Adam.

    Attributes:
        rate: Learning rate with the correction of the averages' start at zero.
        nodes: The nodes that only this update needs, unless other nodes use them too.
    """

    write: NodeDef
    first: _Moment
    second: _Moment
    rate: str
    epsilon: str
    nodes: tuple[NodeDef, ...]


def fuse_updates(graph_def: GraphDef, tensor_of: Callable[[str], tf.Tensor]) -> tuple[GraphDef, int]:
    """Return a graph in which `ResourceApplyAdam` replaces Adam's updates, and the number of replaced updates.

    Args:
        graph_def: Graph of a training step.
        tensor_of: Returns the symbolic tensor of an input reference. Handles of variables have handle data.

    Returns:
        The number is 0 if the graph has no such update, or if another op must run between the parts of an update.
    """
    nodes = {node.name: node for node in graph_def.node}
    replaced_by: dict[str, str] = {}
    found = list(_Updates(graph_def, tensor_of))
    for update in found:
        nodes.update((node.name, node) for node in _kernel(update))
        replaced_by.update((node.name, update.write.name) for node in update.nodes)
    kept = _kept(nodes, replaced_by)
    targets = {name: update for name, update in replaced_by.items() if name not in kept}
    targets.update(_same_reads(kept.values()))
    fused = graph_pb2.GraphDef(library=graph_def.library, versions=graph_def.versions)
    for node in kept.values():
        if node.name not in targets:
            _redirect(fused.node.add(), node, targets)
    return (fused, len(found)) if _has_order(fused) else (graph_def, 0)


class _Updates:
    """Updates by Adam in a graph."""

    def __init__(self, graph_def: GraphDef, tensor_of: Callable[[str], tf.Tensor]) -> None:
        self._nodes = {node.name: node for node in graph_def.node}
        self._writes = [node for node in graph_def.node if node.op == "AssignSubVariableOp"]
        self._tensor_of = tensor_of

    def __iter__(self) -> Iterator[_Update]:
        for write in self._writes:
            update = self._update(write)
            if update is not None and self._has_types_of_kernel(update):
                yield update

    def _update(self, write: NodeDef) -> _Update | None:
        """Match ``variable -= (m * rate) / (sqrt(v) + epsilon)``."""
        quotient = self._made_by(write.input[1], "RealDiv")
        product = self._made_by(quotient.input[0], "Mul") if quotient else None
        total = self._made_by(quotient.input[1], "AddV2") if quotient else None
        if product is None or total is None:
            return None
        for root_of, epsilon in _both_orders(total):
            root = self._made_by(root_of, "Sqrt")
            second = self._moment(root.input[0]) if root is not None else None
            if second is None or not self._is_constant(epsilon):
                continue
            for average, rate in _both_orders(product):
                first = self._moment(average)
                square = self._made_by(second.added, "Square")
                if first is not None and square is not None and full_name(square.input[0]) == full_name(first.added):
                    own = (write, quotient, product, total, root, square, *first.nodes, *second.nodes)
                    return _Update(write, first, second, rate, epsilon, own)
        return None

    def _moment(self, value: str) -> _Moment | None:
        """Match ``average += (added - average) * share`` with the value of `average` read after it."""
        read = self._made_by(value, "ReadVariableOp")
        if read is None:
            return None
        handle = read.input[0]
        waited = [self._nodes[node_of(each)] for each in _controls(read)]
        writes = [each for each in waited if each.op == "AssignAddVariableOp" and each.input[0] == handle]
        product = self._made_by(writes[0].input[1], "Mul") if len(writes) == 1 else None
        if product is None:
            return None
        for change, share in _both_orders(product):
            difference = self._made_by(change, "Sub")
            earlier = self._made_by(difference.input[1], "ReadVariableOp") if difference is not None else None
            if earlier is not None and self._is_last_value(earlier, writes[0]) and self._is_constant(share):
                assert difference is not None
                nodes = (writes[0], read, product, difference, earlier)
                return _Moment(handle, difference.input[0], self._constant(share), nodes)
        return None

    def _is_last_value(self, read: NodeDef, write: NodeDef) -> bool:
        """Return whether a node reads the value that another node then changes, with no write between them."""
        writers = [
            {each for each in _controls(node) if self._nodes[node_of(each)].op != "ReadVariableOp"}
            for node in (read, write)
        ]
        return read.input[0] == write.input[0] and f"^{read.name}" in write.input and writers[1] <= writers[0]

    def _has_types_of_kernel(self, update: _Update) -> bool:
        """Return whether all tensors have the variable's dtype and shape, and the factors are scalars."""
        handles = (update.write.input[0], update.first.handle, update.second.handle)
        types = [_type_of_variable(self._tensor_of(handle)) for handle in handles]
        if types[0] is None or len(set(handles)) < len(handles) or any(each != types[0] for each in types):
            return False
        dtype, shape = types[0]
        gradient, rate = self._tensor_of(update.first.added), self._tensor_of(update.rate)
        has_shape = gradient.shape.is_fully_defined() and tuple(gradient.shape) == shape
        return dtype in _DTYPES and gradient.dtype == dtype and has_shape and rate.shape.rank == 0

    def _made_by(self, reference: str, op: str) -> NodeDef | None:
        """Return the node with a given op that computes a tensor, or None if another op computes it."""
        node = self._nodes.get(node_of(reference))
        return node if node is not None and node.op == op else None

    def _is_constant(self, tensor: str) -> bool:
        node = self._made_by(tensor, "Const")
        return node is not None and self._constant(tensor).shape == ()

    def _constant(self, tensor: str) -> np.ndarray:
        return tf.make_ndarray(self._nodes[node_of(tensor)].attr["value"].tensor)


def _kernel(update: _Update) -> Iterator[NodeDef]:
    """Yield the kernel, under the name of the node that wrote the variable, and its constants."""
    name, share = update.write.name, update.first.share
    # The kernel corrects the averages' start at zero by 1 - beta ** step. The rate includes that, so the power is 0.
    power = _constant(f"{name}/tidemill_power", np.zeros_like(share))
    beta_1 = _constant(f"{name}/tidemill_beta_1", np.subtract(1, share, dtype=share.dtype))
    beta_2 = _constant(f"{name}/tidemill_beta_2", np.subtract(1, update.second.share, dtype=share.dtype))
    yield from (power, beta_1, beta_2)
    kernel = graph_pb2.GraphDef().node.add(name=name, op="ResourceApplyAdam", device=update.write.device)
    kernel.attr["T"].type = update.write.attr["dtype"].type
    variables = (update.write.input[0], update.first.handle, update.second.handle)
    waited = [each for node in update.nodes for each in _controls(node)]
    kernel.input.extend([*variables, power.name, power.name, update.rate, beta_1.name, beta_2.name])
    kernel.input.extend([update.epsilon, update.first.added, *dict.fromkeys(waited)])
    yield kernel


def _constant(name: str, value: np.ndarray) -> NodeDef:
    node = graph_pb2.GraphDef().node.add(name=name, op="Const")
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    return node


def _kept(nodes: Mapping[str, NodeDef], replaced_by: Mapping[str, str]) -> dict[str, NodeDef]:
    """Return the nodes without the parts of replaced updates that no other node needs."""
    wanted = [name for name, node in nodes.items() if name not in replaced_by or node.op == "ResourceApplyAdam"]
    names = reach(wanted, {name: data_inputs(node) for name, node in nodes.items()})
    return {name: node for name, node in nodes.items() if name in names}


def _same_reads(nodes: Iterable[NodeDef]) -> dict[str, str]:
    """Return, by name of a read, an earlier read of the same variable with the same value.

    Writes wait for all earlier reads, and reads for the last write. So two reads that wait for the same nodes have no
    write between them. Keras reads the rate and the number of steps once per variable; with one read each,
    TensorFlow finds that the values computed from them are equal too.
    """
    first: dict[tuple[object, ...], str] = {}
    same = {}
    for node in nodes:
        if node.op == "ReadVariableOp":
            key = (node.input[0], node.device, node.attr["dtype"].type, frozenset(_controls(node)))
            if first.setdefault(key, node.name) != node.name:
                same[node.name] = first[key]
    return same


def _redirect(copy: NodeDef, node: NodeDef, targets: Mapping[str, str]) -> None:
    """Copy a node. The copy uses and waits for the targets of removed nodes, and does not wait for itself."""
    copy.CopyFrom(node)
    del copy.input[:]
    waited = {}
    for reference in node.input:
        name = node_of(reference)
        target = targets.get(name, name)
        if not reference.startswith("^"):
            copy.input.append(target + reference[len(name) :])
        elif target != node.name:
            waited[f"^{target}"] = None
    copy.input.extend(waited)


def _has_order(graph_def: GraphDef) -> bool:
    """Return whether no node depends on itself."""
    try:
        TopologicalSorter({node.name: set(map(node_of, node.input)) for node in graph_def.node}).prepare()
    except CycleError:
        return False
    return True


def _controls(node: NodeDef) -> list[str]:
    return [each for each in node.input if each.startswith("^")]


def _both_orders(node: NodeDef) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the operands of a commutative op in both orders."""
    one, other = node.input[0], node.input[1]
    return (one, other), (other, one)


def _type_of_variable(handle: tf.Tensor) -> tuple[tf.DType, tuple[int, ...]] | None:
    """Return the dtype and the shape of the variable behind a handle, or None if they are not known."""
    data = handle_data_util.get_resource_handle_data(handle)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    shape = tf.TensorShape(data.shape_and_type[0].shape)
    return (tf.as_dtype(data.shape_and_type[0].dtype), tuple(shape)) if shape.is_fully_defined() else None
