"""Keep the sizes of loops and of their gradients known at compile time, which XLA needs for recurrent layers."""

from __future__ import annotations

import functools
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol

import tensorflow as tf
from tensorflow.python.ops import while_v2

from tidemill_tensorflow.compiler.private_api import when_keras_2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tensorflow.python.framework.func_graph import FuncGraph

_SIZES = frozenset({"Shape", "Size", "Rank", "TensorListElementShape", "TensorListLength"})


class Backend(Protocol):
    """The module ``backend`` of Keras 2."""

    rnn: Callable[..., object]
    control_flow_util: object


def keep_sizes_known() -> None:
    """Trace gradients of loops so that sizes of loop invariants are computed where they are used.

    To save memory, TensorFlow computes the sizes of a tensor of the loop in the forward loop, and stores one per
    iteration for the gradient. A stored size is no constant for XLA. If the tensor is the same in all iterations, such
    as the inputs of a recurrent layer, this saves no memory, because the gradient can use the tensor itself.
    """
    graph = while_v2._WhileBodyGradFuncGraph
    original = graph._create_op_internal

    @functools.wraps(original)
    def create(
        self: FuncGraph, op_type: str, inputs: Sequence[tf.Tensor], *arguments: object, **named: object
    ) -> tf.Operation:
        forward = self._forward_graph
        if op_type in _SIZES and all(
            while_v2._is_loop_invariant(each, forward.inputs, forward.outputs) for each in inputs
        ):
            return super(graph, self)._create_op_internal(op_type, inputs, *arguments, **named)
        return original(self, op_type, inputs, *arguments, **named)

    graph._create_op_internal = create


def limit_loops_of_keras_2() -> None:
    """Trace recurrent layers of Keras 2 with a maximum number of iterations, whether it is imported now or later.

    Keras 2 passes this number to TensorFlow only if it knows that XLA will compile the layer. The gradient of a loop
    without it stores values in lists without a fixed length, which XLA does not support.
    """
    when_keras_2("backend", _limit_loops)


def _limit_loops(backend: Backend) -> None:
    if not hasattr(backend, "control_flow_util"):  # of Keras 3, whose recurrent layers always pass the number
        return
    original = backend.rnn
    signature = inspect.signature(original)

    def is_in_xla(graph: tf.Graph) -> bool:
        return True

    in_xla = SimpleNamespace(GraphOrParentsInXlaContext=is_in_xla)

    @functools.wraps(original)
    def rnn(*arguments: object, **named: object) -> object:
        length = signature.bind(*arguments, **named).arguments.get("input_length")
        if tf.is_tensor(length):  # the number of iterations depends on values
            return original(*arguments, **named)
        outer, backend.control_flow_util = backend.control_flow_util, in_xla
        try:
            return original(*arguments, **named)
        finally:
            backend.control_flow_util = outer

    backend.rnn = rnn
