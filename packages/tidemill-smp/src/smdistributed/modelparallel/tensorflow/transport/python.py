"""Python transport over sockets: needs no compiler, but takes several times as long as `native` on tiny tensors."""

import os
import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

import numpy as np

import tensorflow as tf
from smdistributed.modelparallel.tensorflow._shared.ranks.messages import read_exactly
from smdistributed.modelparallel.tensorflow._shared.tensorflow_types import DType, GraphOperation, Tensor
from smdistributed.modelparallel.tensorflow.transport import messages
from smdistributed.modelparallel.tensorflow.transport.base import Transport
from smdistributed.modelparallel.tensorflow.transport.errors import DEADLOCK_MARK, END_MARK, LOST_MARK


class _Peer:
    """One connection: a queue of outgoing messages, mailboxes of received messages, and a thread for each direction."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        self.connection = connection
        self.name = name
        self.changed = threading.Condition()
        self.outgoing: deque[tuple[bytes, bytes]] = deque()
        self.writing = False
        self.incoming: defaultdict[int, deque[np.ndarray]] = defaultdict(deque)
        self.waiting: dict[int, str] = {}
        self.lost = ""
        """Why the peer is lost; empty while it is connected."""

    def start(self) -> None:
        for target in (self._read, self._write):
            threading.Thread(target=target, name=f"smp-tensors{target.__name__}", daemon=True).start()

    def lose(self, why: str) -> None:
        with self.changed:
            self.lost = self.lost or why
            self.changed.notify_all()

    def _read(self) -> None:
        try:
            while True:
                channel, array = self._read_message()
                with self.changed:
                    self.incoming[channel].append(array)
                    self.changed.notify_all()
        except EOFError:
            self.lose(f"{self.name} is gone: its connection ended")
        except (OSError, ValueError, MemoryError) as error:
            self.lose(f"{self.name} is gone: {error}")

    def _read_message(self) -> tuple[int, np.ndarray]:
        header = messages.read_header(read_exactly(self.connection, messages.HEADER_BYTES))
        dimensions = read_exactly(self.connection, header.dimensions * messages.DIMENSION_BYTES)
        shape = struct.unpack(f"<{header.dimensions}q", dimensions)
        dtype = tf.dtypes.as_dtype(header.dtype).as_numpy_dtype
        return header.channel, np.frombuffer(read_exactly(self.connection, header.size), dtype=dtype).reshape(shape)

    def _write(self) -> None:
        while True:
            with self.changed:
                self.writing = False
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.outgoing)
                header, data = self.outgoing.popleft()
                self.writing = True
            try:
                self.connection.sendall(header)
                self.connection.sendall(data)
            except OSError as error:
                self.lose(f"{self.name} is gone: {error}")
                return


class PythonTransport(Transport):
    """The `Transport` that needs no native library."""

    name = "python"
    receives_occupy_threads = True

    def __init__(
        self, connections: dict[int, socket.socket], *, hang_timeout_s: float, name_of: Callable[[int], str]
    ) -> None:
        self._hang_timeout_s = hang_timeout_s
        self._name_of = name_of
        self._peers = {rank: _Peer(connection, name_of(rank)) for rank, connection in connections.items()}
        for peer in self._peers.values():
            peer.start()
        os.register_at_fork(after_in_child=self._close_in_child)

    def _send(self, tensor: Tensor, *, peer: int, channel: int, label: str) -> GraphOperation:
        number = tensor.dtype.as_datatype_enum
        connection = self._peers[peer]

        def queue(value: np.ndarray) -> None:
            array = np.asarray(value)  # TensorFlow passes scalars as NumPy scalars
            data = array.tobytes()  # a copy: TensorFlow may reuse the memory after the op
            header = messages.pack_header(number, array.shape, channel, len(data))
            with connection.changed:
                if connection.lost:
                    raise tf.errors.AbortedError(None, None, _lost(connection.lost, "send", label))
                connection.outgoing.append((header, data))
                connection.changed.notify_all()

        return tf.numpy_function(queue, [tensor], [], name="smp_send")

    def _receive(self, dtype: DType, *, peer: int, channel: int, label: str) -> Tensor:
        connection = self._peers[peer]

        def take() -> np.ndarray:
            array = self._take(connection, channel, label)
            if array.dtype != dtype.as_numpy_dtype:
                raise TypeError(f"{connection.name} sent {array.dtype.name} where {dtype.name} was expected: {label}")
            return array

        return tf.numpy_function(take, [], dtype, name="smp_receive")

    def _close_in_child(self) -> None:
        # A child process is not a rank, and a connection that it keeps open would hide the exit of its parent.
        for peer in self._peers.values():
            peer.connection.close()

    def _take(self, connection: _Peer, channel: int, label: str) -> np.ndarray:
        deadline = time.monotonic() + self._hang_timeout_s
        mailbox = connection.incoming[channel]
        with connection.changed:
            connection.waiting[channel] = label
            try:
                while not mailbox:
                    self._wait_for_change(connection, deadline, label)
                return mailbox.popleft()
            finally:
                connection.waiting.pop(channel, None)

    def _wait_for_change(self, connection: _Peer, deadline: float, label: str) -> None:
        if connection.lost:
            raise tf.errors.AbortedError(None, None, _lost(connection.lost, "receive", label))
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            words = (
                f"{connection.name} sent nothing within {self._hang_timeout_s:g} s (hang_timeout_s) while "
                f"this rank waited to receive {label}"
            )
            raise tf.errors.DeadlineExceededError(None, None, DEADLOCK_MARK + words + END_MARK)
        connection.changed.wait(remaining)

    def lose_all(self, why: str) -> None:
        """See `Transport.lose_all`."""
        for peer in self._peers.values():
            peer.lose(why)

    def waiting(self) -> str:
        """See `Transport.waiting`."""
        for peer in self._peers.values():
            label = next(iter(list(peer.waiting.values())), "")
            if label:
                return f"receive {label} from {peer.name}"
        return ""

    def flush(self, timeout_s: float) -> None:
        """See `Transport.flush`."""
        deadline = time.monotonic() + timeout_s
        for peer in self._peers.values():
            with peer.changed:
                peer.changed.wait_for(
                    lambda peer=peer: peer.lost or not (peer.outgoing or peer.writing),
                    max(0.0, deadline - time.monotonic()),
                )


def _lost(why: str, what: str, label: str) -> str:
    return f"{LOST_MARK}{why}; this rank was to {what} {label}{END_MARK}"
