"""Native transport: custom ops over sockets. No data passes through Python.

Waiting receives occupy no thread, except on TensorFlow 2.12.
"""

import ctypes
import os
import socket
from collections.abc import Callable

from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import DType, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.tensorflow_api import has_asynchronous_kernels
from smdistributed.modelparallel.tensorflow.transport.base import Transport
from smdistributed.modelparallel.tensorflow.transport.library import NativeLibrary

_TEXT_BYTES = 1024


class NativeTransport(Transport):
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
        self.receives_occupy_threads = not has_asynchronous_kernels()
        self._ops = library.ops
        self._functions = library.functions
        for rank, connection in connections.items():
            descriptor = os.dup(connection.fileno())  # owned by the library, independent of the Python object
            connection.close()
            limit = ctypes.c_double(hang_timeout_s)
            self._functions.tidemill_smp_open(rank, descriptor, name_of(rank).encode(), limit)

    def _send(self, tensor: Tensor, *, peer: int, channel: int, label: str) -> GraphOperation:
        return self._ops.tidemill_smp_send(tensor=tensor, peer=peer, channel=channel, label=label)

    def _receive(self, dtype: DType, *, peer: int, channel: int, label: str) -> Tensor:
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
