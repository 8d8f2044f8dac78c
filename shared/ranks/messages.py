"""Read whole messages from a socket, and write them: each is preceded by its length."""

from __future__ import annotations

import socket
import struct

_LENGTH = struct.Struct("<I")


def send_message(connection: socket.socket, data: bytes) -> None:
    """Send a message."""
    connection.sendall(_LENGTH.pack(len(data)) + data)


def read_message(connection: socket.socket) -> bytes:
    """Wait for a message; raises like `read_exactly`."""
    (size,) = _LENGTH.unpack(read_exactly(connection, _LENGTH.size))
    return bytes(read_exactly(connection, size))


def read_exactly(connection: socket.socket, size: int) -> bytearray:
    """Wait for `size` bytes.

    Raises:
        EOFError: If the other end has closed.
        OSError: If the connection broke.
    """
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        got = connection.recv_into(view)
        if not got:
            raise EOFError("end of stream")
        view = view[got:]
    return buffer
