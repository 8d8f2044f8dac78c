"""The protocol between two ranks: a handshake with the job's secret, then frames.

Objects are pickled, so a peer can run code in a rank. Nothing else is read from a connection before both sides have
proved that they know the secret.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "Frame",
    "HandshakeError",
    "Hello",
    "Kind",
    "Purpose",
    "accept",
    "introduce",
    "pack_frame",
    "read_exactly",
    "read_frame",
    "send_frame",
]

_MAGIC = b"TMSP"
_VERSION = 1
_HELLO = struct.Struct("<4sHHI32s")  # magic, version, purpose, rank, nonce
_FRAME = struct.Struct("<2sHIQQ")  # magic, kind, reserved, tag, size
_FRAME_MAGIC = b"TF"
_PROOF_BYTES = 32
_SMALL_BYTES = 65536


class Purpose(IntEnum):
    """Purpose of a connection."""

    OBJECTS = 0
    TENSORS = 1
    STORE = 2


class Kind(IntEnum):
    """Kind of a frame."""

    MESSAGE = 0
    ACK = 1
    HEARTBEAT = 2
    GOODBYE = 3
    FAILURE = 4


class Hello(NamedTuple):
    """Identity of the other end."""

    purpose: Purpose
    rank: int


class Frame(NamedTuple):
    """A received frame."""

    kind: Kind
    tag: int
    payload: bytearray


class HandshakeError(Exception):
    """The other end is not a rank of this job."""


def introduce(connection: socket.socket, *, secret: bytes, rank: int, purpose: Purpose) -> Hello:
    """Perform the handshake on the connecting side."""
    return _handshake(connection, b"caller", b"callee", secret, rank, purpose)


def accept(connection: socket.socket, *, secret: bytes, rank: int) -> Hello:
    """Perform the handshake on the accepting side."""
    return _handshake(connection, b"callee", b"caller", secret, rank, None)


def _handshake(
    connection: socket.socket, own_role: bytes, other_role: bytes, secret: bytes, rank: int, purpose: Purpose | None
) -> Hello:
    own = _HELLO.pack(_MAGIC, _VERSION, purpose or 0, rank, secrets.token_bytes(32))
    try:
        connection.sendall(own)
        other = bytes(read_exactly(connection, _HELLO.size))
        magic, version, wanted, other_rank, _ = _HELLO.unpack(other)
        if magic != _MAGIC or version != _VERSION:
            raise HandshakeError(f"expected {_MAGIC!r} version {_VERSION}, received {magic!r} version {version}")
        connection.sendall(_proof(secret, own_role, own, other))
        if not hmac.compare_digest(
            _proof(secret, other_role, other, own), bytes(read_exactly(connection, _PROOF_BYTES))
        ):
            raise HandshakeError("the other end does not know this job's secret")
    except (OSError, EOFError) as error:
        raise HandshakeError(f"the connection ended during the handshake ({error or type(error).__name__})") from error
    return Hello(Purpose(wanted) if purpose is None else purpose, other_rank)


def _proof(secret: bytes, role: bytes, own: bytes, other: bytes) -> bytes:
    return hmac.digest(secret, role + own + other, hashlib.sha256)


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
