"""The interface between the engine and the transports, and what these have in common."""

from abc import ABC, abstractmethod

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import DType, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.transport.messages import check_dtype


class Transport(ABC):
    """Sends and receives tensors between two ranks, as ops of a graph.

    Both calls add one stateful op to the graph under construction. A message is identified by (peer, channel); messages
    on one channel arrive in the order in which they were sent. `label` names the tensor in errors: partition,
    microbatch, op.
    """

    name: str
    """`native` or `python`, for the log."""
    receives_occupy_threads: bool
    """Whether a receive occupies one of TensorFlow's inter-op threads until its message arrives."""

    def send(self, tensor: Tensor, *, peer: int, channel: int, label: str) -> GraphOperation:
        """Add an op that queues `tensor` (any numeric or bool dtype, any shape) for `peer` and returns at once.

        Args:
            tensor: The tensor to send.
            peer: Global rank of the receiver.
            channel: 0 <= channel < 2**62, the same number on both sides.
            label: For error messages.

        Returns:
            The `tf.Operation`, for control dependencies. It fails with `tf.errors.AbortedError` if the peer is lost
            (with `tf.errors.UnknownError` in the Python transport; `transport.errors.library_errors` converts either
            into an exception of this library).

        Raises:
            TypeError: If the dtype cannot be sent.
        """
        tensor = tf.convert_to_tensor(tensor)
        check_dtype(tensor.dtype)
        with tf.device("CPU:0"):
            return self._send(tensor, peer=peer, channel=channel, label=label)

    def receive(self, dtype: DType, *, peer: int, channel: int, label: str) -> Tensor:
        """Add an op that waits for the next message of `channel` from `peer`.

        Args:
            dtype: The expected `tf.DType`; receiving another one is an error.
            peer: Global rank of the sender.
            channel: As for `send`.
            label: For error messages.

        Returns:
            A `tf.Tensor` of unknown static shape (the message contains the shape). The op fails with
            `tf.errors.AbortedError` if the peer is lost, and with `tf.errors.DeadlineExceededError` if nothing arrives
            within `hang_timeout_s`; both name the peer and `label`.

        Raises:
            TypeError: If the dtype cannot be sent.
        """
        dtype = tf.dtypes.as_dtype(dtype)
        check_dtype(dtype)
        with tf.device("CPU:0"):
            return self._receive(dtype, peer=peer, channel=channel, label=label)

    @abstractmethod
    def lose_all(self, why: str) -> None:
        """Fail all current and later operations, because a rank of the job was lost for the reason `why`.

        Args:
            why: A sentence for the error.
        """

    @abstractmethod
    def waiting(self) -> str:
        """Describe the messages that this rank waits for; empty if none."""

    @abstractmethod
    def flush(self, timeout_s: float) -> None:
        """Wait until queued messages are written to the sockets or their receivers are lost, at most `timeout_s`.

        Args:
            timeout_s: Longest wait in seconds.
        """

    @abstractmethod
    def _send(self, tensor: Tensor, *, peer: int, channel: int, label: str) -> GraphOperation:
        """Add the op of `send`."""

    @abstractmethod
    def _receive(self, dtype: DType, *, peer: int, channel: int, label: str) -> Tensor:
        """Add the op of `receive`."""
