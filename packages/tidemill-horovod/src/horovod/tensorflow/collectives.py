"""The ops that all public functions use: one collective over a list of tensors, in graphs and eagerly.

With the native engine each call is one op: of its library, or before TensorFlow 2.6 of a Python function. A
communicator that only exchanges arrays runs in Python. With one process no op is needed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce
from operator import index
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow.compat.v2 as tf

from horovod.tensorflow._shared.tensorflow_types import GraphOperation, Tensor
from horovod.tensorflow.engine import CollectiveEngine
from horovod.tensorflow.errors import horovod_errors
from horovod.tensorflow.process import communicator, current_engine, rank, size


class CollectiveKind(IntEnum):
    """The collectives, as numbered in native/message.h."""

    ALLREDUCE = 0
    ALLGATHER = 1
    ALLTOALL = 2
    BROADCAST = 3
    JOIN = 4
    REDUCESCATTER = 5


class Reduction(IntEnum):
    """How an allreduce combines elements, as numbered in native/reduction.h."""

    SUM = 0
    MIN = 1
    MAX = 2
    PRODUCT = 3


_NO_GRADIENT = "Min, Max and Product have no gradient: use Sum or Average, or tf.stop_gradient"

_calls: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()
"""By graph, how often each name was used in it."""


def run(
    kind: CollectiveKind,
    tensors: Sequence[Tensor],
    *,
    label: str,
    ranks: Sequence[int] | None = None,
    reduction: Reduction = Reduction.SUM,
    root: int = 0,
    scale: float = 1.0,
    in_order: bool = False,
) -> list[Tensor]:
    """Add the op of a collective, or run it eagerly.

    Args:
        kind: The collective. An alltoall has two tensors: the rows, and the int64 numbers of rows for each rank (empty
            for equal numbers).
        tensors: Dense tensors that are sent independently of each other; tensors that are ready together are fused.
        label: Name of the op. Ranks match tensors by it, by their place in the graph and by their order.
        ranks: The ranks that take part, ascending; None for all.
        reduction: How an allreduce combines elements; ignored by other collectives.
        root: Rank whose tensor a broadcast sends, counted in all ranks.
        scale: Factor for the result of an allreduce or reducescatter, as for `scaled`.
        in_order: In a `tf.function`, run after the stateful ops that were added before this one, and before those that
            come later. By default the op runs as soon as its inputs are computed.

    Returns:
        As many tensors as the inputs. The second of an alltoall has the int64 numbers of rows from each rank. Static
        shapes are those of the inputs, except for the first axis of an allgather, an alltoall and a reducescatter.
    """
    members = range(size()) if ranks is None else ranks
    if len(members) == 1 and kind is not CollectiveKind.JOIN:
        if kind is CollectiveKind.ALLTOALL:
            return _send_to_self(*tensors)
        return [scaled(tf.identity(tensor), scale) for tensor in tensors]
    engine = current_engine()
    if engine is None:
        return _run_portably(kind, tensors, label, ranks, reduction, root, scale)
    is_eager = tf.executing_eagerly()
    name = label if is_eager or kind is CollectiveKind.JOIN else _name_in_graph(label)
    arguments = {
        "tensors": list(tensors),
        "kind": int(kind),
        "reduction": int(reduction),
        "root": index(root),
        "eager": int(is_eager),
        "scale": repr(float(scale)),
        "names": name
        if len(tensors) == 1 or kind is CollectiveKind.ALLTOALL
        else "\n".join(f"{name}.{place}" for place in range(len(tensors))),
        "members": ",".join(map(str, members)),
    }
    if not is_eager:
        arguments["name"] = label.replace("\n", "_")
    if engine.is_op:
        results = _add_op(engine, arguments, is_eager)
        if not is_eager:
            _set_shapes(kind, tensors, results, members)
            if not in_order and engine.is_asynchronous:
                _run_when_ready(results[0].op)
        return results
    call = _Call(kind, members, reduction, root, scale)
    return _run_on_host(engine, arguments, call, is_eager)


def occupies_threads() -> bool:
    """Return whether a collective occupies a thread of TensorFlow while it waits for other ranks.

    If all threads wait in different collectives on different ranks, they wait for ever. So collectives that could run
    at the same time have to be one, or to follow each other.
    """
    engine = current_engine()
    return engine is not None and not engine.is_asynchronous


@contextmanager
def one_after_the_other(before: Sequence[Any]) -> Generator[None]:
    """Run ops that are created in this context after others, if collectives occupy threads.

    Args:
        before: Results of earlier collectives: tensors, `tf.IndexedSlices` and Nones.
    """
    waits = [one.op for one in before if one is not None] if occupies_threads() and not tf.executing_eagerly() else []
    with tf.control_dependencies(waits):
        yield


def scaled(tensor: Tensor, factor: float) -> Tensor:
    """Multiply a tensor by a number, in the precision of Horovod: integers in float64, truncated; half precision in
    float32, rounded once; booleans not at all.

    Args:
        tensor: A dense tensor.
        factor: The number.

    Returns:
        A tensor of the same dtype.
    """
    dtype = tensor.dtype
    if factor == 1.0 or dtype.is_bool:
        return tensor
    wide = tf.float64 if dtype.is_integer else tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype
    return tf.cast(
        tf.cast(tensor, wide) * tf.constant(factor, wide), dtype
    )  # tf.cast would round the factor to float32


def _send_to_self(tensor: Tensor, splits: Tensor) -> list[Tensor]:
    """Run an alltoall of one rank: the native op does the same checks for several ranks."""
    rows = tf.shape(tensor, tf.int64)[:1]
    given = rows if splits.shape == [0] else splits
    words = "hvd.alltoall: allowed as splits is one number >= 0 that is at most the number of rows"
    checks = [
        tf.debugging.assert_equal(tf.shape(given), [1], words),
        tf.debugging.assert_non_negative(given, words),
        tf.debugging.assert_less_equal(given, rows, words),
    ]
    with tf.control_dependencies([] if tf.executing_eagerly() else checks):
        return [tensor[: given[0]], tf.identity(given)]


def _name_in_graph(label: str) -> str:
    """Return a name that is equal on ranks that trace the same code: TensorFlow's per-process counters are left out."""
    graph = tf.compat.v1.get_default_graph()
    counter = _calls.setdefault(graph, Counter())
    counter[label] += 1
    traced = re.sub(r"\d+", "", getattr(graph, "name", ""))
    return f"{traced}.{label}.{counter[label]}".replace("\n", " ")


def _run_when_ready(op: GraphOperation) -> None:
    """Keep a `tf.function` from running its collectives one after the other, in the order of their creation.

    TensorFlow orders all stateful ops that way. The gradient of the first layer, which is computed last, would then be
    sent first, and no gradient would be sent during the backward pass.
    """
    dependencies = getattr(op.graph, "experimental_acd_manager", None)
    if dependencies is not None:
        dependencies.run_independently(op)


def _set_shapes(
    kind: CollectiveKind, tensors: Sequence[Tensor], results: Sequence[Tensor], members: Sequence[int]
) -> None:
    for tensor, result in zip(tensors, results):
        if kind in (CollectiveKind.ALLREDUCE, CollectiveKind.BROADCAST, CollectiveKind.JOIN):
            result.set_shape(tensor.shape)
        elif tensor.shape.rank:
            rows, *others = tensor.shape.as_list()
            own = None
            if kind is CollectiveKind.REDUCESCATTER and rows is not None:
                own = rows // len(members) + (members.index(rank()) < rows % len(members))
            result.set_shape([own, *others])
    if kind is CollectiveKind.ALLTOALL:
        results[1].set_shape([len(members)])


@dataclass(frozen=True)
class _Call:
    """What the gradient of a collective depends on."""

    kind: CollectiveKind
    members: Sequence[int]
    reduction: int
    root: int
    scale: float


def _add_op(engine: CollectiveEngine, arguments: dict[str, Any], is_eager: bool) -> list[Tensor]:
    if not is_eager:
        return list(engine.collective(**arguments))
    with horovod_errors():
        return list(engine.collective(**arguments))


def _run_on_host(engine: CollectiveEngine, arguments: dict[str, Any], call: _Call, is_eager: bool) -> list[Tensor]:
    """Run a collective that is a Python function: TensorFlow knows no gradient of its op."""
    members = call.members

    @tf.autograph.experimental.do_not_convert
    @tf.custom_gradient
    def with_gradient(*tensors: Tensor) -> tuple[list[Tensor], Callable[..., list[Any]]]:
        results = _add_op(engine, {**arguments, "tensors": list(tensors)}, is_eager)
        if not is_eager:
            _set_shapes(call.kind, tensors, results, members)

        def backward(*upstream: Tensor) -> list[Any]:
            return _gradients(call, tensors, results, upstream)

        return results, backward

    return list(with_gradient(*arguments["tensors"]))


@tf.RegisterGradient("HorovodCollective")
def _gradient(op: GraphOperation, *upstream: Tensor) -> list[Any]:
    call = _Call(
        CollectiveKind(op.get_attr("kind")),
        [int(one) for one in op.get_attr("members").split(b",")],
        op.get_attr("reduction"),
        op.get_attr("root"),
        float(op.get_attr("scale")),
    )
    return _gradients(call, op.inputs, op.outputs, upstream)


def _gradients(
    call: _Call, inputs: Sequence[Tensor], outputs: Sequence[Tensor], upstream: Sequence[Tensor]
) -> list[Any]:
    kind, members = call.kind, call.members
    if kind is CollectiveKind.ALLREDUCE:
        if call.reduction != Reduction.SUM:
            raise LookupError(_NO_GRADIENT)
        return run(kind, upstream, label="gradient", ranks=members, scale=call.scale)
    if kind is CollectiveKind.BROADCAST:
        return _gradients_of_root(upstream, members, call.root)
    if kind is CollectiveKind.ALLGATHER:
        return [_own_rows(tensor, given, members) for tensor, given in zip(inputs, upstream)]
    if kind is CollectiveKind.REDUCESCATTER:
        # As Horovod defines it, so that a reducescatter and an allgather together have the gradient of an allreduce.
        factor = call.scale * len(members)
        gathered = run(CollectiveKind.ALLGATHER, upstream, label="gradient", ranks=members)
        return [scaled(tensor, factor) for tensor in gathered]
    if kind is CollectiveKind.ALLTOALL:
        back, _ = run(kind, [upstream[0], outputs[1]], label="gradient", ranks=members)
        shape = tf.shape(inputs[0])
        unsent = tf.zeros(tf.concat([[shape[0] - tf.shape(back)[0]], shape[1:]], 0), back.dtype)
        return [tf.concat([back, unsent], 0), None]
    return [None for _ in upstream]


def _means(upstream: Sequence[Tensor], ranks: Sequence[int] | None) -> list[Tensor]:
    """Return gradients averaged over the ranks: Horovod defines those of allgather and broadcast so, not as sums."""
    count = size() if ranks is None else len(ranks)
    return run(CollectiveKind.ALLREDUCE, upstream, label="gradient", ranks=ranks, scale=1.0 / count)


def _gradients_of_root(upstream: Sequence[Tensor], ranks: Sequence[int] | None, root: int) -> list[Tensor]:
    """Return the gradients of a broadcast, which only the tensors of its root have."""
    means = _means(upstream, ranks)
    if root == rank():
        return means
    with tf.control_dependencies(means):  # a session would leave them out, and the other ranks wait for them
        return [tf.zeros_like(mean) for mean in means]


def _own_rows(tensor: Tensor, upstream: Tensor, ranks: Sequence[int] | None) -> Tensor:
    (mean,) = _means([upstream], ranks)
    rows = tf.shape(tensor, tf.int64)[:1]
    (counts,) = run(CollectiveKind.ALLGATHER, [rows], label="gradient.rows", ranks=ranks)
    begin = tf.reduce_sum(counts[: rank() if ranks is None else ranks.index(rank())])
    return mean[begin : begin + rows[0]]


# --- a communicator that exchanges arrays ---------------------------------------------------------------------------


def _run_portably(
    kind: CollectiveKind,
    tensors: Sequence[Tensor],
    label: str,
    ranks: Sequence[int] | None,
    reduction: Reduction,
    root: int,
    scale: float,
) -> list[Tensor]:
    if ranks is not None or kind in (CollectiveKind.ALLTOALL, CollectiveKind.JOIN):
        raise ValueError(
            f"the communicator that hvd.init was given exchanges arrays only: process sets, hvd.alltoall and hvd.join "
            f"({kind.name.lower()} here) want ranks that may connect with each other (`can_connect`)"
        )
    group = communicator()
    combine = {Reduction.MIN: np.minimum, Reduction.MAX: np.maximum, Reduction.PRODUCT: np.multiply}

    def work(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        if kind is CollectiveKind.BROADCAST:
            result = group.broadcast(array, index(root))
        elif kind is CollectiveKind.REDUCESCATTER:
            result = np.array_split(group.allreduce(array, "sum"), group.size)[group.rank]
        elif kind is CollectiveKind.ALLGATHER:
            result = np.concatenate(group.allgather(array), 0)
        elif reduction is Reduction.SUM:
            result = group.allreduce(array, "sum")
        else:
            result = reduce(combine[reduction], group.allgather(array))
        return np.asarray(result, array.dtype)

    def forward(tensor: Tensor) -> Tensor:
        result = tf.numpy_function(work, [tensor], tensor.dtype, name=label)
        _set_shapes(kind, [tensor], [result], range(group.size))
        return scaled(result, scale)

    @tf.autograph.experimental.do_not_convert
    @tf.custom_gradient
    def with_gradient(tensor: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def backward(upstream: Tensor) -> Tensor:
            if kind is CollectiveKind.BROADCAST:
                return _gradients_of_root([upstream], None, root)[0]
            if kind is CollectiveKind.ALLGATHER:
                return _own_rows(tensor, upstream, None)
            if kind is CollectiveKind.REDUCESCATTER:
                (all_,) = _run_portably(CollectiveKind.ALLGATHER, [upstream], label, ranks, reduction, root, 1.0)
                return scaled(all_, scale * group.size)
            if reduction is not Reduction.SUM:
                raise LookupError(_NO_GRADIENT)
            return _run_portably(kind, [upstream], label, ranks, reduction, root, scale)[0]

        return forward(tensor), backward

    return [with_gradient(tensor) for tensor in tensors]
