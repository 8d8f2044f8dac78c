"""Hashes how tensors of a traced step are computed: equal for equal computations, in this graph and in others."""

import hashlib
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import Graph, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.engine.nodes import Node, Output
from tensorflow.python.framework import tensor_util

_SIZES = frozenset({"Rank", "Shape", "ShapeN", "Size"})
_COUNTED = re.compile(rb"_\d+")
"""Counters of the process that TensorFlow appends to the names of functions."""


class Origins:
    """Hashes of the computations of one graph that do not depend on the batch."""

    def __init__(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        independent: Set[Output],
        captures: Mapping[str, Tensor],
        inputs: Mapping[str, int],
    ) -> None:
        """Prepare to hash tensors of a graph.

        Args:
            graph: The traced graph.
            nodes: Its ops.
            independent: The tensors that do not depend on the batch, from `invariance_of`.
            captures: Name of a placeholder -> captured tensor.
            inputs: Name of a placeholder -> its index among the inputs of the step.
        """
        self._graph = graph
        self._index = {node.name: node.index for node in nodes}
        self._independent = independent
        self._captures = captures
        self._inputs = inputs
        self._known: dict[str, bytes] = {}

    def of(self, tensor: Tensor) -> str | None:
        """Return the hash of a tensor's computation; None if the tensor depends on the batch.

        Args:
            tensor: A tensor of the traced graph.

        Returns:
            Hexadecimal.
        """
        if (self._index[tensor.op.name], tensor.value_index) not in self._independent:
            return None
        return self._hash(tensor).hex()

    def _hash(self, tensor: Tensor) -> bytes:
        found = self._known.get(tensor.name)
        if found is None:
            found = self._known[tensor.name] = _digest(*self._parts(tensor))
        return found

    def _parts(self, tensor: Tensor) -> list[bytes]:
        op = tensor.op
        # Equal values may be computed differently, such as an element of constant shapes: hash known values as such.
        folded = tensor_util.constant_value(tensor)
        folded = tensor_util.try_evaluate_constant(tensor) if folded is None else folded
        if folded is not None:
            return _parts_of_constant(tensor.dtype, np.asarray(folded))
        if op.type == "Placeholder":
            return self._parts_of_placeholder(op)
        head = [op.type.encode(), str(tensor.value_index).encode()]
        if op.type in _SIZES:  # sizes of an activation may be independent although the activation is not
            return [*head, *(part.name.encode() for part in op.inputs)]
        attributes = op.node_def.attr
        head += [self._attribute(name, attributes[name]) for name in sorted(attributes) if not name.startswith("_")]
        return head + [self._hash(part) for part in op.inputs]

    def _parts_of_placeholder(self, op: GraphOperation) -> list[bytes]:
        external = self._captures.get(op.name)
        if external is None:
            return [b"input", str(self._inputs[op.name]).encode()]
        if isinstance(external, tf.__internal__.EagerTensor) and external.dtype not in (tf.resource, tf.variant):
            return _parts_of_constant(external.dtype, external.numpy())
        return [b"captured", str(id(external)).encode()]

    def _attribute(self, name: str, value: Any) -> bytes:
        if not value.HasField("func"):
            return name.encode() + value.SerializeToString(deterministic=True)
        nodes = self._graph._get_function(value.func.name).definition.node_def
        return name.encode() + b"".join(_COUNTED.sub(b"", node.SerializeToString(deterministic=True)) for node in nodes)


def _parts_of_constant(dtype: tf.DType, value: np.ndarray) -> list[bytes]:
    content = repr(value.tolist()).encode() if dtype == tf.string else value.tobytes()
    return [b"constant", dtype.name.encode(), repr(value.shape).encode(), content]


def _digest(*parts: bytes) -> bytes:
    summed = hashlib.sha256()
    for part in parts:
        summed.update(len(part).to_bytes(8, "little") + part)
    return summed.digest()
