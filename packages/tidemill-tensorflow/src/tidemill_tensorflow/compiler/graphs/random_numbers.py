"""Replace random ops so that a step draws the same numbers with and without XLA.

TensorFlow and XLA draw the same Philox bits, but XLA converts them to floats differently, and XLA cannot read the state
of TensorFlow's stateful ops. So each random op is replaced by a function that draws bits and converts them as
TensorFlow's CPU kernels do: low mantissa bits for uniform floats, Box-Muller for normal floats. Without XLA,
TensorFlow's stateless kernels draw the same numbers in one pass, which is faster (`with_kernels`).

A count of values replaces the state of a stateful op: after n values it draws from the Philox counter ``256 * n`` on,
as the op does. The op's seeds are the key and the upper half of the counter.
"""

from __future__ import annotations

import functools
import math
import re
import secrets
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.python.framework import op_def_registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef
    from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction

STATEFUL = {
    "RandomUniform": "uniform",
    "RandomStandardNormal": "normal",
}
"""Stateful ops, whose state a count of values replaces."""

_STATELESS = {
    "StatelessRandomUniformV2": "uniform",
    "StatelessRandomNormalV2": "normal",
}
REPLACED = frozenset(STATEFUL) | frozenset(_STATELESS)

_RANDOM = re.compile(
    "Random|TruncatedNormal|Multinomial|CandidateSampler|DistortedBoundingBox|Shuffle|Fractional|Stateful"
)
"""Names of ops that draw random numbers; it matches a few other ops as well."""
_SAME_NUMBERS = re.compile(
    "StatelessRandomUniformFullInt(V2)?|StatelessRandomGet(KeyCounter|Alg|KeyCounterAlg)|RandomGammaGrad"
    "|Stateful(Partitioned)?Call|RngReadAndSkip"
)
"""Those of the matched ops whose result is the same in XLA: bits, keys made of seeds, and calls."""

SIZES = "tidemill_sizes"
"""Name of the node that returns, for each stateful op, the number of values that this run draws."""

_EACH = "tidemill_drawn_each"
_PHILOX = 1
_16_BITS = {tf.float16: (10, 15), tf.bfloat16: (7, 127)}
"""By type: the number of bits of the mantissa, and the exponent of 1."""
_FLOATS = (tf.float32, tf.float64, *_16_BITS)


def replace_random_ops(graph_def: GraphDef, *, drawn: str | None) -> list[str]:
    """Replace the random ops of a flat graph, in place.

    Args:
        graph_def: A GraphDef whose calls are inlined. Functions are added to its library, and the node `SIZES` if it
            has stateful ops.
        drawn: Name of the node with the state of the stateful ops (`Draws.state`). None if the graph has none.

    Returns:
        The names of the ops that cannot be replaced, because of their distribution or dtype, or because they are inside
        loops or branches.
    """
    refused = []
    stateful = [node for node in graph_def.node if node.op in STATEFUL]
    if drawn is not None:
        _add_sizes(graph_def, stateful, drawn)
    position = {node.name: index for index, node in enumerate(stateful)}
    for node in list(graph_def.node):
        kind = STATEFUL.get(node.op) or _STATELESS.get(node.op)
        if kind is None:
            if _draws_other_numbers(node.op):
                refused.append(node.op)
            continue
        dtype = tf.as_dtype(node.attr["dtype"].type)
        if dtype not in _FLOATS:
            refused.append(f"{node.op} of {dtype.name}")
            continue
        if node.op in STATEFUL:
            own, runs = f"{_EACH}:{position[node.name]}", f"{_EACH}:{len(stateful)}"
            seeds = (node.attr["seed"].i, node.attr["seed2"].i)
            if seeds == (0, 0):
                seeds = (secrets.randbits(62) + 1, secrets.randbits(62))
            shape_dtype = tf.as_dtype(node.attr["T"].type)
            function, kernel = (_stateful(draw, dtype, seeds, shape_dtype) for draw in _DRAW[kind])
            _call(graph_def, node, function, inputs=[node.input[0], own, runs])
        else:
            shape_dtype = tf.as_dtype(node.attr["Tshape"].type)
            function, kernel = (_stateless(draw, dtype, shape_dtype) for draw in _DRAW[kind])
            _call(graph_def, node, function, inputs=list(node.input[:3]))
        _KERNELS[node.attr["f"].func.name] = kernel
    for function in graph_def.library.function:
        refused += [
            f"{node.op} in a loop or branch"
            for node in function.node_def
            if node.op in REPLACED or _draws_other_numbers(node.op)
        ]
    return refused


def with_kernels(graph_def: GraphDef) -> GraphDef:
    """Return a graph for use without XLA, in which TensorFlow's kernels draw the numbers of the replaced random ops.

    Args:
        graph_def: A GraphDef after `replace_random_ops`.
    """
    changed = graph_pb2.GraphDef()
    changed.CopyFrom(graph_def)
    for node in changed.node:
        if is_replaced(node):
            kernel = _KERNELS[node.attr["f"].func.name]
            add_functions(changed, kernel)
            node.attr["f"].func.name = kernel.function_def.signature.name
    return changed


def _add_sizes(graph_def: GraphDef, stateful: Sequence[NodeDef], drawn: str) -> None:
    """Add nodes that take the state apart, and nodes that compute the sizes of the stateful ops' results."""
    int32, int64 = tf.int32.as_datatype_enum, tf.int64.as_datatype_enum

    def add(op: str, name: str, inputs: Sequence[str], **attributes: int) -> NodeDef:
        node = graph_def.node.add(name=name, op=op, input=inputs)
        for key, value in attributes.items():
            setattr(node.attr[key], "i" if key in ("N", "num", "axis") else "type", value)
        return node

    add("Unpack", _EACH, [drawn], num=len(stateful) + 1, T=int64, axis=0)
    axes = add("Const", "tidemill_axes", [], dtype=int32)
    axes.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([0], tf.int32))
    sizes = []
    for index, node in enumerate(stateful):
        shape, size = f"tidemill_shape_{index}", f"tidemill_size_{index}"
        add("Cast", shape, [node.input[0]], SrcT=node.attr["T"].type, DstT=int64)
        add("Prod", size, [shape, axes.name], T=int64, Tidx=int32)
        sizes.append(size)
    add("Pack", SIZES, sizes, N=len(sizes), T=int64, axis=0)


def draws_by_state(node: NodeDef) -> bool:
    """Return whether a node draws random numbers by a state of its kernel, which a copy of the node does not share."""
    definition = op_def_registry.get(node.op)
    is_stateful = definition is not None and bool(definition.is_stateful)
    return node.op in STATEFUL or (is_stateful and _draws_other_numbers(node.op))


def is_replaced(node: NodeDef) -> bool:
    """Return whether a node took the place of a random op. Its first input is the shape of the numbers."""
    return node.op == "PartitionedCall" and node.attr["f"].func.name in _KERNELS


def _draws_other_numbers(op: str) -> bool:
    """Return whether an op may draw other numbers in XLA, or in a second copy of the op with a state of its own."""
    return op not in REPLACED and _RANDOM.search(op) is not None and _SAME_NUMBERS.fullmatch(op) is None


def _call(graph_def: GraphDef, node: NodeDef, function: ConcreteFunction, *, inputs: Sequence[str]) -> None:
    """Turn a node into a call of a function. The names of the node's outputs stay the same."""
    control = [name for name in node.input if name.startswith("^")]
    own = function.function_def
    add_functions(graph_def, function)
    node.op = "PartitionedCall"
    node.ClearField("attr")
    del node.input[:]
    node.input.extend([*inputs, *control])
    node.attr["Tin"].list.type.extend(argument.type for argument in own.signature.input_arg)
    node.attr["Tout"].list.type.extend(result.type for result in own.signature.output_arg)
    node.attr["f"].func.name = own.signature.name


def add_functions(graph_def: GraphDef, function: ConcreteFunction) -> None:
    """Add a function, and the functions that it calls, to the library of a graph."""
    known = {each.signature.name for each in graph_def.library.function}
    for definition in [function.function_def, *function.graph.as_graph_def().library.function]:
        if definition.signature.name not in known:
            known.add(definition.signature.name)
            graph_def.library.function.add().CopyFrom(definition)


# TensorFlow removes a function when its Python object is deleted, even if graphs call it. The cache keeps the objects.
@functools.cache
def _stateless(draw: Callable[..., tf.Tensor], dtype: tf.DType, shape_dtype: tf.DType) -> ConcreteFunction:
    def stateless_numbers(shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
        return draw(shape, key, counter, dtype)

    return _traced(stateless_numbers, [((None,), shape_dtype), ((1,), tf.uint64), ((2,), tf.uint64)])


@functools.cache
def _stateful(
    draw: Callable[..., tf.Tensor], dtype: tf.DType, seeds: tuple[int, int], shape_dtype: tf.DType
) -> ConcreteFunction:
    key, upper = (seed % 2**64 for seed in seeds)

    def stateful_numbers(shape: tf.Tensor, drawn: tf.Tensor, runs: tf.Tensor) -> tf.Tensor:
        values = tf.reduce_prod(tf.cast(shape, tf.int64))
        start = tf.cast((drawn + runs * values) * 256, tf.uint64)
        counter = tf.stack([start, tf.constant(upper, tf.uint64)])
        return draw(shape, tf.constant([key], tf.uint64), counter, dtype)

    return _traced(stateful_numbers, [((None,), shape_dtype), ((), tf.int64), ((), tf.int64)])


def _traced(
    function: Callable[..., tf.Tensor], arguments: Sequence[tuple[tuple[int | None, ...], tf.DType]]
) -> ConcreteFunction:
    specs = [tf.TensorSpec(shape, dtype) for shape, dtype in arguments]
    return tf.function(function, autograph=False, input_signature=specs).get_concrete_function()


def _uniform(shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if dtype == tf.float32:
        return _unit_float32(_bits(shape, key, counter))
    if dtype in _16_BITS:
        return _unit_16_bits(_bits(shape, key, counter), dtype)
    size = tf.reduce_prod(shape)
    bits = _bits(tf.stack([size, tf.constant(2, size.dtype)]), key, counter)
    return tf.reshape(_unit_float64(bits[:, 0], bits[:, 1]), shape)


def _normal(shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if dtype in _16_BITS:
        return tf.cast(_normal(shape, key, counter, tf.float32), dtype)
    size = tf.reduce_prod(shape)
    two = tf.constant(2, size.dtype)
    pairs = (size + 1) // two
    if dtype == tf.float32:
        bits = _bits(tf.stack([pairs, two]), key, counter)
        first, second = _unit_float32(bits[:, 0]), _unit_float32(bits[:, 1])
    else:
        bits = _bits(tf.stack([pairs, 2 * two]), key, counter)
        first, second = _unit_float64(bits[:, 0], bits[:, 1]), _unit_float64(bits[:, 2], bits[:, 3])
    radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(first, tf.constant(1.0e-7, dtype))))
    angle = tf.constant(2.0 * math.pi, dtype) * second
    both = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
    return tf.reshape(tf.reshape(both, [-1])[:size], shape)


def _uniform_by_kernel(shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformV2(
        shape=shape, key=key, counter=counter, alg=tf.constant(_PHILOX), dtype=dtype
    )


def _normal_by_kernel(shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomNormalV2(
        shape=shape, key=key, counter=counter, alg=tf.constant(_PHILOX), dtype=dtype
    )


_DRAW = {"uniform": (_uniform, _uniform_by_kernel), "normal": (_normal, _normal_by_kernel)}
"""For each distribution: how XLA draws its numbers, and how TensorFlow's kernels draw the same numbers."""

_KERNELS: dict[str, ConcreteFunction] = {}
"""By name of a function that replaces a random op: the function that draws the same numbers by TensorFlow's kernel."""


def _bits(shape: tf.Tensor, key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=shape, key=key, counter=counter, alg=tf.constant(_PHILOX), dtype=tf.uint32
    )


def _unit_float32(bits: tf.Tensor) -> tf.Tensor:
    mantissa = tf.bitwise.bitwise_and(bits, tf.constant(0x7FFFFF, tf.uint32))
    return tf.bitcast(tf.bitwise.bitwise_or(mantissa, tf.constant(0x3F800000, tf.uint32)), tf.float32) - 1.0


def _unit_16_bits(bits: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    size, one = _16_BITS[dtype]
    mantissa = tf.bitwise.bitwise_and(bits, tf.constant(2**size - 1, tf.uint32))
    value = tf.bitwise.bitwise_or(mantissa, tf.constant(one << size, tf.uint32))
    return tf.bitcast(tf.cast(value, tf.uint16), dtype) - tf.constant(1.0, dtype)


def _unit_float64(high: tf.Tensor, low: tf.Tensor) -> tf.Tensor:
    upper = tf.bitwise.bitwise_and(tf.cast(high, tf.uint64), tf.constant(0xFFFFF, tf.uint64))
    mantissa = tf.bitwise.bitwise_or(tf.bitwise.left_shift(upper, tf.constant(32, tf.uint64)), tf.cast(low, tf.uint64))
    return tf.bitcast(tf.bitwise.bitwise_or(mantissa, tf.constant(1023 << 52, tf.uint64)), tf.float64) - 1.0


class Draws:
    """State of the stateful random ops of one function.

    TensorFlow's own ops keep their state to themselves. It follows from the number of values that they have drawn.
    """

    def __init__(self) -> None:
        self._drawn: np.ndarray | np.int64 = np.int64(0)

    def restart(self) -> None:
        """Start all sequences anew, as a new seed does."""
        self._drawn = np.int64(0)

    def state(self, ops: int, *, later: int = 0) -> tf.Tensor:
        """Return the state before a run.

        Args:
            ops: Number of stateful random ops.
            later: Number of runs between the last counted one and this one, which draw as many values as this one.

        Returns:
            int64 tensor of shape ``(ops + 1,)``: by op, the number of values that it has drawn; then `later`.
        """
        state = np.empty(ops + 1, np.int64)
        state[:ops] = self._drawn
        state[ops] = later
        return tf.constant(state)

    def add(self, sizes: tf.Tensor | np.ndarray, *, runs: int = 1) -> None:
        """Count runs.

        Args:
            sizes: int64 array of shape ``(ops,)``: by op, the number of values that each run drew.
        """
        self._drawn = self._drawn + runs * np.asarray(sizes)
