"""Native transport: custom ops over sockets. Waiting receives occupy no thread, and no data passes through Python."""

import ctypes
import os
import socket
from collections.abc import Callable

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import DType, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.transport import messages
from smdistributed.modelparallel.tensorflow.transport.library import NativeLibrary

_TEXT_BYTES = 1024


class NativeTransport:
    """The fast `Transport`."""

    name = "native"

    def __init__(
        self,
        library: NativeLibrary,
        connections: dict[int, socket.socket],
        *,
        hang_timeout_s: float,
        name_of: Callable[[int], str],
    ) -> None:
        self._ops = library.ops
        self._functions = library.functions
        for rank, connection in connections.items():
            descriptor = os.dup(connection.fileno())  # owned by the library, independent of the Python object
            connection.close()
            limit = ctypes.c_double(hang_timeout_s)
            self._functions.tidemill_smp_open(rank, descriptor, name_of(rank).encode(), limit)

    def send(self, tensor: Tensor, *, peer: int, channel: int, label: str) -> GraphOperation:
        """See `Transport.send`.

        Args:
            tensor: Any shape.
            peer: Rank of the receiver.
            channel: Number of the channel.
            label: What is sent, for errors.

        Returns:
            The op.

        Raises:
            TypeError: If the dtype cannot be sent.
        """
        tensor = tf.convert_to_tensor(tensor)
        messages.check_dtype(tensor.dtype)
        with tf.device("CPU:0"):
            return self._ops.tidemill_smp_send(tensor=tensor, peer=peer, channel=channel, label=label)

    def receive(self, dtype: DType, *, peer: int, channel: int, label: str) -> Tensor:
        """See `Transport.receive`.

        Returns:
            A tensor of unknown shape.
        """
        dtype = tf.dtypes.as_dtype(dtype)
        messages.check_dtype(dtype)
        with tf.device("CPU:0"):
            return self._ops.tidemill_smp_receive(T=dtype, peer=peer, channel=channel, label=label)

    def lose_all(self, why: str) -> None:
        """See `Transport.lose_all`."""
        self._functions.tidemill_smp_lose_all(why.encode())

    def waiting(self) -> str:
        """See `Transport.waiting`."""
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        self._functions.tidemill_smp_waiting(text, _TEXT_BYTES)
        return text.value.decode(errors="replace")

    def flush(self, timeout_s: float) -> None:
        """See `Transport.flush`."""
        self._functions.tidemill_smp_flush(ctypes.c_double(timeout_s))
