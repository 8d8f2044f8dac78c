"""Keep the sizes in gradients of loops known at compile time, which XLA needs for recurrent layers."""

from __future__ import annotations

import functools
from typing import Any

from tensorflow.python.ops import while_v2

__all__ = ["keep_sizes_known"]

_SIZES = frozenset({"Shape", "Size", "Rank", "TensorListElementShape", "TensorListLength"})


def keep_sizes_known() -> None:
    """Trace gradients of loops so that sizes of loop invariants are computed where they are used.

    To save memory, TensorFlow computes the sizes of a tensor of the loop in the forward loop, and stores one per
    iteration for the gradient. A stored size is no constant for XLA. If the tensor is the same in all iterations, such
    as the inputs of a recurrent layer, this saves no memory, because the gradient can use the tensor itself.
    """
    graph = while_v2._WhileBodyGradFuncGraph
    original = graph._create_op_internal

    @functools.wraps(original)
    def create(self: Any, op_type: str, inputs: Any, *arguments: Any, **named: Any) -> Any:
        forward = self._forward_graph
        if op_type in _SIZES and all(
            while_v2._is_loop_invariant(each, forward.inputs, forward.outputs) for each in inputs
        ):
            return super(graph, self)._create_op_internal(op_type, inputs, *arguments, **named)
        return original(self, op_type, inputs, *arguments, **named)

    graph._create_op_internal = create
