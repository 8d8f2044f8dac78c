"""The seam between the engine and the sockets."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["Transport"]


class Transport(Protocol):
    """Tensors between two ranks, as ops of a graph.

    Both calls add one stateful op to the graph that is being built. A message is known by (peer, channel); messages on
    one channel arrive in the order in which they were sent. `label` is what an error names: partition, microbatch, op.
    """

    name: str
    """`native` or `python`: what the log line at start says."""

    def send(self, tensor: Any, *, peer: int, channel: int, label: str) -> Any:
        """Add an op that queues `tensor` (any numeric or bool dtype, any shape) for `peer` and returns at once.

        Args:
            tensor: What to send.
            peer: The world rank it goes to.
            channel: 0 <= channel < 2**62, the same number on both sides.
            label: For error messages.

        Returns:
            The `tf.Operation`, for control dependencies. It fails with `tf.errors.AbortedError` if the peer is lost
            (with `tf.errors.UnknownError` in the transport in Python; `transport.errors.library_errors` turns either
            into the library's own exception).
        """
        ...

    def receive(self, dtype: Any, *, peer: int, channel: int, label: str) -> Any:
        """Add an op that waits for the next message of `channel` from `peer`.

        Args:
            dtype: The `tf.DType` expected; another one arriving is an error.
            peer: The world rank it comes from.
            channel: As for `send`.
            label: For error messages.

        Returns:
            A `tf.Tensor` of unknown shape (the message carries the shape). The op fails with `tf.errors.AbortedError`
            if the peer is lost, and with `tf.errors.DeadlineExceededError` if nothing comes within `hang_timeout_s`,
            naming the peer and `label`.
        """
        ...

    def lose_all(self, why: str) -> None:
        """Fail all that waits, now and later: a rank of the job died, as `why` says."""
        ...

    def waiting(self) -> str:
        """What this rank waits to receive; empty if for nothing."""
        ...

    def flush(self, timeout_s: float) -> None:
        """Wait until what was sent is in the network, or its receiver is gone."""
        ...
