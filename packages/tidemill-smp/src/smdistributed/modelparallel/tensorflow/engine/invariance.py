"""Finds the microbatch-invariant tensors of a step: sizes, constants, and weights that the step only reads.

All microbatches of a step have the same sizes; except for the batch axis, the whole batch has them too. So a tensor of
the traced graph is in one of three states:

| state | example | sent between ranks | rows of a lookup with these indices |
|---|---|---|---|
| independent of the batch | `tf.range(tf.shape(x)[1])` | once per step | summed over the microbatches |
| equal in all microbatches | `tf.shape(x)[0]` | once per step | concatenated |
| varying | `x` | with each microbatch | concatenated |

Vectors of sizes, such as `tf.shape(x)`, are tracked by element. Sizes that depend on data, such as those of
`tf.where(x)`, vary. The results of unknown ops vary.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Graph, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output

Feed = int | Literal["whole", "varying sizes"]
"""How an input of the step was split: on this axis; not at all; or so that sizes may differ."""

_State = frozenset[int] | Literal["equal", "varying"]
"""The elements of a vector that depend on the batch size (none if it is independent), or the state of the tensor."""

_INDEPENDENT: frozenset[int] = frozenset()

_KEEPING = """
    Abs Add AddV2 BitwiseAnd BitwiseOr Cast ClipByValue ConcatV2 Equal FloorDiv FloorMod GatherNd GatherV2
    Greater GreaterEqual Identity IdentityN InvertPermutation Less LessEqual LogicalAnd LogicalNot LogicalOr Maximum
    Minimum Mod Mul Neg NotEqual OnesLike Pack Pow RealDiv ResourceGather Select SelectV2 Shape ShapeN Sign Size Split
    Square StopGradient Sub TruncateDiv Unpack ZerosLike
"""
_TAKING = """
    All Any ArgMax ArgMin BroadcastTo Cumprod Cumsum ExpandDims Max Mean Min MirrorPad OneHot Pad PadV2 Prod Reshape
    ReverseV2 Slice SplitV Squeeze StridedSlice Sum Tile TopKV2 Transpose
"""
_SIZES_FROM_SIZES = frozenset(_KEEPING.split())
"""Ops whose results have sizes that do not depend on the values of any input."""
_SIZES_FROM_OTHERS = frozenset(_TAKING.split())
"""Ops whose results have sizes that do not depend on the values of the first input."""

_SIZES_FROM_DATA = ("Horovod", "ListDiff", "NonMax", "Ragged", "Sparse", "String", "Unique", "Where")
"""Parts of the names of ops whose results have sizes that may depend on the values of all inputs."""
_FUNCTIONS = ("Case", "EagerPyFunc", "If", "PartitionedCall", "PyFunc", "Stateful", "Stateless", "While")
"""The same for ops that run functions; for other ops only integers, booleans and strings may determine sizes."""


@dataclass(frozen=True)
class Invariance:
    """The invariant tensors of a traced step."""

    equal: Set[Output] = frozenset()
    """Tensors that are equal in all microbatches."""
    independent: Set[Output] = frozenset()
    """Those of `equal` that the whole batch would have too, as far as the graph shows: a static batch size is a
    constant in the graph."""


def written_handles(nodes: Sequence[Node]) -> frozenset[Output]:
    """Return the resource handles that a step may write to, so that values read from them may change.

    Args:
        nodes: Nodes of the trace.
    """
    # A handle may be written through an Identity.
    return frozenset(
        handle
        for node in nodes
        if node.type == "Identity" or (node.stateful and node.type != "ReadVariableOp")
        for handle in node.handles
    )


def invariance_of(graph: Graph, nodes: Sequence[Node], feeds: Mapping[Output, Feed]) -> Invariance:
    """Propagate the states of a step's inputs through its graph.

    Args:
        graph: The traced graph.
        nodes: Its ops in topological order.
        feeds: Placeholder -> how that input was split. Other placeholders are captured tensors, which are equal for all
            microbatches.
    """
    reader = _StateReader(graph, nodes, feeds)
    for node in nodes:
        reader.read(node)
    return Invariance(
        frozenset(output for output, state in reader.states.items() if state != "varying"),
        frozenset(output for output, state in reader.states.items() if state == _INDEPENDENT),
    )


@dataclass
class _StateReader:
    graph: Graph
    nodes: Sequence[Node]
    feeds: Mapping[Output, Feed]
    states: dict[Output, _State] = field(default_factory=dict)
    batch_axes: dict[Output, int] = field(default_factory=dict)
    """The batch axis of a tensor, if it is not 0."""
    varying_sizes: set[int] = field(default_factory=set)
    """Nodes with results whose sizes may differ between microbatches."""

    def __post_init__(self) -> None:
        self.written = written_handles(self.nodes)

    def read(self, node: Node) -> None:
        op = self.graph.get_operation_by_name(node.name)
        states = self._states(node, op)
        self.states |= {(node.index, number): state for number, state in enumerate(states)}
        if any(state == "varying" for state in states):
            self._read_sizes(node, op)

    # Values

    def _states(self, node: Node, op: GraphOperation) -> list[_State]:
        if node.type == "Placeholder":
            is_same = self.feeds.get((node.index, 0), "whole") == "whole" and op.outputs[0].dtype != tf.resource
            return [_INDEPENDENT if is_same else "varying"]
        if node.type == "ReadVariableOp":
            return [_INDEPENDENT if self.written.isdisjoint(node.handles) else "varying"]
        if node.stateful or node.handles:
            return ["varying"] * len(op.outputs)
        given = [self.states[output] for output in node.inputs]
        if all(state == _INDEPENDENT for state in given) or node.type == "Rank":
            return [_INDEPENDENT] * len(op.outputs)
        if node.type in ("Shape", "ShapeN"):
            return [self._state_of_shape(output) for output in node.inputs]
        if node.type == "Size":
            return ["varying" if node.inputs[0][0] in self.varying_sizes else "equal"]
        if "varying" in given:
            return ["varying"] * len(op.outputs)
        by_element = _BY_ELEMENT.get(node.type)
        found = by_element(op, given) if by_element is not None else None
        return found or ["equal"] * len(op.outputs)

    def _state_of_shape(self, output: Output) -> _State:
        if self.states[output] == _INDEPENDENT:
            return _INDEPENDENT
        if output[0] in self.varying_sizes:
            return "varying"
        return frozenset({self.batch_axes.get(output, 0)})

    # Sizes

    def _read_sizes(self, node: Node, op: GraphOperation) -> None:
        feed = self.feeds.get((node.index, 0))
        if node.type == "Placeholder":
            if isinstance(feed, int):
                self.batch_axes[node.index, 0] = feed
            may_differ = feed == "varying sizes"
        else:
            self._follow_batch_axis(node, op)
            may_differ = self._depends_on_data(node, op)
        # A static size is the size in all microbatches.
        if may_differ and not all(tensor.shape.is_fully_defined() for tensor in op.outputs):
            self.varying_sizes.add(node.index)

    def _depends_on_data(self, node: Node, op: GraphOperation) -> bool:
        if any(source in self.varying_sizes for source, _ in node.inputs) or node.type.startswith(_SIZES_FROM_DATA):
            return True
        if node.type in _SIZES_FROM_SIZES:
            return False
        inputs = list(zip(node.inputs, op.inputs, strict=True))[1 if node.type in _SIZES_FROM_OTHERS else 0 :]
        is_function = node.type.startswith(_FUNCTIONS) and not node.type.startswith("StatelessRandom")
        return any(
            self.states[output] == "varying"
            and (is_function or tensor.dtype.is_integer or tensor.dtype.is_bool or tensor.dtype == tf.string)
            for output, tensor in inputs
        )

    def _follow_batch_axis(self, node: Node, op: GraphOperation) -> None:
        for output, tensor in zip(node.inputs, op.inputs, strict=True):
            axis = self.batch_axes.get(output, 0)
            if node.type == "Transpose":
                order = tf.get_static_value(op.inputs[1])
                if order is not None and self.states[output] == "varying":
                    self.batch_axes[node.index, 0] = order.tolist().index(axis)
                return
            keeps_axes = node.type in _SIZES_FROM_SIZES and tensor.shape.rank is not None
            if axis and keeps_axes and op.outputs[0].shape.rank == tensor.shape.rank:
                self.batch_axes[node.index, 0] = axis
                return


# --- vectors of sizes -------------------------------------------------------------------------------------------------


def _same(op: GraphOperation, given: list[_State]) -> list[_State]:
    del op
    return [given[0]]


def _packed(op: GraphOperation, given: list[_State]) -> list[_State] | None:
    if op.inputs[0].shape.rank != 0:
        return None
    return [frozenset(place for place, state in enumerate(given) if state != _INDEPENDENT)]


def _unpacked(op: GraphOperation, given: list[_State]) -> list[_State] | None:
    (dependent,) = given
    if isinstance(dependent, str) or op.inputs[0].shape.rank != 1:
        return None
    return ["equal" if place in dependent else _INDEPENDENT for place in range(len(op.outputs))]


def _concatenated(op: GraphOperation, given: list[_State]) -> list[_State] | None:
    *vectors, _ = list(op.inputs)
    dependent: set[int] = set()
    length = 0
    for vector, state in zip(vectors, given, strict=False):
        size = vector.shape[0] if vector.shape.rank == 1 else None
        if size is None or isinstance(state, str):
            return None
        dependent |= {length + place for place in state}
        length += size
    return [frozenset(dependent)]


def _taken(op: GraphOperation, given: list[_State]) -> list[_State] | None:
    """Return the states of the results of `tf.gather`."""
    return _chosen(op.inputs[0], given[0], tf.get_static_value(op.inputs[1]))


def _sliced(op: GraphOperation, given: list[_State]) -> list[_State] | None:
    """Return the states of `sizes[begin:end:stride]` or `sizes[place]`."""
    masks = {name: op.get_attr(name) for name in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")}
    begin, end, stride = (tf.get_static_value(tensor) for tensor in list(op.inputs)[1:])
    if begin is None or len(begin) != 1 or masks["ellipsis_mask"] or masks["new_axis_mask"]:
        return None
    if op.get_attr("shrink_axis_mask"):
        return _chosen(op.inputs[0], given[0], begin[0])
    length = op.inputs[0].shape[0] if op.inputs[0].shape.rank == 1 else None
    if end is None or stride is None or length is None:
        return None
    ends = None if masks["begin_mask"] else int(begin[0]), None if masks["end_mask"] else int(end[0])
    return _chosen(op.inputs[0], given[0], list(range(length))[slice(*ends, int(stride[0]))])


def _chosen(vector: Tensor, state: _State, places: Any) -> list[_State] | None:
    if isinstance(state, str) or places is None or vector.shape.rank != 1:
        return None
    places, length = np.asarray(places), vector.shape[0]
    if places.ndim > 1 or (length is None and np.any(places < 0)):
        return None
    flat = [int(place) if length is None else int(place) % length for place in places.reshape(-1)]
    if places.ndim == 0:
        return ["equal" if flat[0] in state else _INDEPENDENT]
    return [frozenset(at for at, place in enumerate(flat) if place in state)]


_BY_ELEMENT = {
    "Cast": _same,
    "ConcatV2": _concatenated,
    "GatherV2": _taken,
    "Identity": _same,
    "Pack": _packed,
    "StridedSlice": _sliced,
    "Unpack": _unpacked,
}
