"""The ops that all public functions use: one collective over a list of tensors, in graphs and eagerly.

With the native engine each call is one op of its library. A communicator that only exchanges arrays runs in Python.
With one process no op is needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from functools import reduce
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from horovod.tensorflow.errors import horovod_errors
from horovod.tensorflow.process import communicator, current_engine, rank, size

__all__ = ["Kind", "Reduction", "run"]


class Kind(IntEnum):
    """The collectives, as numbered in native/message.h."""

    ALLREDUCE = 0
    ALLGATHER = 1
    ALLTOALL = 2
    BROADCAST = 3
    JOIN = 4


class Reduction(IntEnum):
    """How an allreduce combines elements, as numbered in native/reduction.h."""

    SUM = 0
    MIN = 1
    MAX = 2
    PRODUCT = 3


_calls: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
"""By graph, how often each name was used in it."""


def run(
    kind: Kind,
    tensors: Sequence[Any],
    *,
    label: str,
    ranks: Sequence[int] | None = None,
    reduction: Reduction = Reduction.SUM,
    root: int = 0,
    scale: float = 1.0,
    in_order: bool = False,
) -> list[Any]:
    """Add the op of a collective, or run it eagerly.

    Args:
        kind: The collective. An alltoall has two tensors: the rows, and the int64 numbers of rows for each rank.
        tensors: Dense tensors that are sent independently of each other; tensors that are ready together are fused.
        label: Name of the op. Ranks match tensors by it, by their place in the graph and by their order.
        ranks: The ranks that take part, ascending; None for all.
        reduction: How an allreduce combines elements; ignored by other collectives.
        root: Rank whose tensor a broadcast sends, counted in all ranks.
        scale: Factor for the result of an allreduce of floats.
        in_order: In a `tf.function`, run after the stateful ops that were added before this one, and before those that
            come later. By default the op runs as soon as its inputs are computed.

    Returns:
        As many tensors as the inputs (one for an alltoall). Static shapes are those of the inputs, except for the first
        axis of an allgather and an alltoall.
    """
    members = range(size()) if ranks is None else ranks
    if len(members) == 1 and kind is not Kind.JOIN:
        return [_scaled(tf.identity(tensor), scale) for tensor in tensors[: 1 if kind is Kind.ALLTOALL else None]]
    engine = current_engine()
    if engine is None:
        return _run_portably(kind, tensors, label, ranks, reduction, root, scale)
    is_eager = tf.executing_eagerly()
    name = label if is_eager else _name_in_graph(label)
    arguments = {
        "tensors": list(tensors),
        "kind": int(kind),
        "reduction": int(reduction),
        "root": root,
        "eager": int(is_eager),
        "scale": repr(float(scale)),
        "names": name if len(tensors) == 1 else "\n".join(f"{name}.{place}" for place in range(len(tensors))),
        "members": ",".join(map(str, members)),
    }
    if is_eager:
        with horovod_errors():
            results = engine.collective(**arguments)
    else:
        results = engine.collective(**arguments, name=label.replace("\n", "_"))
        _set_shapes(kind, tensors, results)
        if not in_order:
            _run_when_ready(results[0].op)
    return list(results[:1] if kind is Kind.ALLTOALL else results)


def _name_in_graph(label: str) -> str:
    """Return a name that is equal on ranks that trace the same code: TensorFlow's per-process counters are left out."""
    graph = tf.compat.v1.get_default_graph()
    counter = _calls.setdefault(graph, Counter())
    counter[label] += 1
    place = re.sub(r"\d+", "", getattr(graph, "name", ""))
    return f"{place}.{label}.{counter[label]}".replace("\n", " ")


def _run_when_ready(op: Any) -> None:
    """Keep a `tf.function` from running its collectives one after the other, in the order of their creation.

    TensorFlow orders all stateful ops that way. The gradient of the first layer, which is computed last, would then be
    sent first, and no gradient would be sent during the backward pass.
    """
    dependencies = getattr(op.graph, "experimental_acd_manager", None)
    if dependencies is not None:
        dependencies.run_independently(op)


def _set_shapes(kind: Kind, tensors: Sequence[Any], results: Sequence[Any]) -> None:
    for tensor, result in zip(tensors, results, strict=True):
        if kind in (Kind.ALLREDUCE, Kind.BROADCAST, Kind.JOIN):
            result.set_shape(tensor.shape)
        elif tensor.shape.rank:
            result.set_shape([None, *tensor.shape[1:]])


def _scaled(tensor: Any, scale: float) -> Any:
    return tensor if scale == 1.0 else tensor * tf.cast(scale, tensor.dtype)


@tf.RegisterGradient("HorovodCollective")
def _gradient(op: Any, *upstream: Any) -> list[Any]:
    kind, members = Kind(op.get_attr("kind")), [int(one) for one in op.get_attr("members").split(b",")]
    if kind is Kind.ALLREDUCE:
        if op.get_attr("reduction") != Reduction.SUM:
            raise LookupError("Min, Max and Product have no gradient: use Sum or Average, or tf.stop_gradient")
        return run(kind, upstream, label="gradient", ranks=members, scale=float(op.get_attr("scale")))
    if kind is Kind.BROADCAST:
        means = _means(upstream, members)
        return means if op.get_attr("root") == rank() else [tf.zeros_like(mean) for mean in means]
    if kind is Kind.ALLGATHER:
        return [_own_rows(tensor, given, members) for tensor, given in zip(op.inputs, upstream, strict=True)]
    if kind is Kind.ALLTOALL:
        _, splits = op.inputs
        (all_splits,) = run(Kind.ALLGATHER, [splits[tf.newaxis]], label="gradient.splits", ranks=members)
        back = all_splits[:, members.index(rank())]
        return [run(kind, [upstream[0], back], label="gradient", ranks=members)[0], None]
    return [None for _ in upstream]


def _means(upstream: Sequence[Any], members: Sequence[int]) -> list[Any]:
    """Return gradients averaged over the ranks: Horovod defines those of allgather and broadcast so, not as sums."""
    return run(Kind.ALLREDUCE, upstream, label="gradient", ranks=members, scale=1.0 / len(members))


def _own_rows(tensor: Any, upstream: Any, members: Sequence[int]) -> Any:
    (mean,) = _means([upstream], members)
    rows = tf.shape(tensor, tf.int64)[:1]
    (counts,) = run(Kind.ALLGATHER, [rows], label="gradient.rows", ranks=members)
    begin = tf.reduce_sum(counts[: members.index(rank())])
    return mean[begin : begin + rows[0]]


# --- a communicator that exchanges arrays ---------------------------------------------------------------------------


def _run_portably(
    kind: Kind,
    tensors: Sequence[Any],
    label: str,
    ranks: Sequence[int] | None,
    reduction: Reduction,
    root: int,
    scale: float,
) -> list[Any]:
    if ranks is not None or kind in (Kind.ALLTOALL, Kind.JOIN):
        raise ValueError(
            f"the communicator that hvd.init was given exchanges arrays only: process sets, hvd.alltoall and hvd.join "
            f"({kind.name.lower()} here) want ranks that may connect with each other (`can_connect`)"
        )
    group = communicator()
    combine = {Reduction.MIN: np.minimum, Reduction.MAX: np.maximum, Reduction.PRODUCT: np.multiply}

    def work(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        if kind is Kind.BROADCAST:
            result = group.broadcast(array, root)
        elif kind is Kind.ALLGATHER:
            result = np.concatenate(group.allgather(array), 0)
        elif reduction is Reduction.SUM:
            result = group.allreduce(array, "sum")
        else:
            result = reduce(combine[reduction], group.allgather(array))
        return np.asarray(result, array.dtype)

    def forward(tensor: Any) -> Any:
        result = tf.numpy_function(work, [tensor], tensor.dtype, name=label)
        _set_shapes(kind, [tensor], [result])
        return _scaled(result, scale)

    def with_gradient(tensor: Any) -> Any:
        def backward(upstream: Any) -> Any:
            return _run_portably(kind, [upstream], label, ranks, reduction, root, scale)[0]

        return forward(tensor), backward

    if kind is Kind.ALLREDUCE and reduction is Reduction.SUM:
        return [tf.custom_gradient(with_gradient)(tensor) for tensor in tensors]
    return [forward(tensor) for tensor in tensors]
