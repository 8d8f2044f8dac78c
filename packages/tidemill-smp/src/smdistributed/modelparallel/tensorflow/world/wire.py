"""The frames between two ranks, whose connection has begun with a handshake (`_shared/ranks/handshake`).

Objects are pickled, so a peer can run code in a rank.
"""

import socket
import struct
from enum import IntEnum
from typing import NamedTuple

from smdistributed.modelparallel.tensorflow._shared.ranks.messages import read_exactly

_FRAME = struct.Struct("<2sHIQQ")  # magic, kind, reserved, tag, size
_FRAME_MAGIC = b"TF"
_SMALL_BYTES = 65536


class Kind(IntEnum):
    """Kind of a frame."""

    MESSAGE = 0
    ACK = 1
    HEARTBEAT = 2
    GOODBYE = 3
    FAILURE = 4


class Frame(NamedTuple):
    """A received frame."""

    kind: Kind
    tag: int
    payload: bytearray


def send_frame(connection: socket.socket, kind: Kind, tag: int, payload: bytes | memoryview) -> None:
    """Send a whole frame. Not thread-safe."""
    if len(payload) <= _SMALL_BYTES:
        connection.sendall(pack_frame(kind, tag, payload))
    else:
        connection.sendall(_FRAME.pack(_FRAME_MAGIC, kind, 0, tag, len(payload)))
        connection.sendall(payload)


def pack_frame(kind: Kind, tag: int, payload: bytes | memoryview) -> bytes:
    """Return a small frame as bytes."""
    return _FRAME.pack(_FRAME_MAGIC, kind, 0, tag, len(payload)) + bytes(payload)


def read_frame(connection: socket.socket) -> Frame:
    """Wait for a frame.

    Raises:
        EOFError: If the other end has closed.
        OSError: If the connection broke.
    """
    magic, kind, _, tag, size = _FRAME.unpack(read_exactly(connection, _FRAME.size))
    if magic != _FRAME_MAGIC:
        raise OSError(f"a frame begins with {magic!r} instead of {_FRAME_MAGIC!r}: the stream is out of step")
    return Frame(Kind(kind), tag, read_exactly(connection, size))
