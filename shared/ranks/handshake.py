"""The first bytes of a connection between two ranks: each end proves that it knows the job's secret.

Ranks unpickle each other's objects, so a peer can run code in a rank. Nothing else is read from a connection before
both ends have proved that they know the secret. The secret itself is never sent.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import struct
from typing import NamedTuple

from .errors import RanksError
from .messages import read_exactly

_MAGIC = b"TMRK"
_VERSION = 1
_HELLO = struct.Struct("<4sHI10s32s")  # magic, version, rank, channel, nonce
_PROOF_BYTES = 32


class HandshakeError(RanksError):
    """The other end is not a rank of this job."""


class Hello(NamedTuple):
    """Identity of the other end."""

    rank: int
    channel: str
    """What the connection is for; empty if the other end has accepted it."""


def introduce(connection: socket.socket, *, secret: bytes, rank: int, channel: str) -> Hello:
    """Perform the handshake on the connecting side.

    Args:
        connection: A connection to another rank.
        channel: What the connection is for, in at most 10 bytes.

    Raises:
        HandshakeError: If the other end does not know the secret, or has ended.
    """
    return _shake(connection, b"caller", b"callee", secret, rank, channel)


def accept(connection: socket.socket, *, secret: bytes, rank: int) -> Hello:
    """Perform the handshake on the accepting side; see `introduce`."""
    return _shake(connection, b"callee", b"caller", secret, rank, "")


def _shake(
    connection: socket.socket, own_role: bytes, other_role: bytes, secret: bytes, rank: int, channel: str
) -> Hello:
    own = _HELLO.pack(_MAGIC, _VERSION, rank, channel.encode(), secrets.token_bytes(32))
    try:
        connection.sendall(own)
        other = bytes(read_exactly(connection, _HELLO.size))
        magic, version, other_rank, other_channel, _ = _HELLO.unpack(other)
        if magic != _MAGIC or version != _VERSION:
            raise HandshakeError(f"expected {_MAGIC!r} version {_VERSION}, received {magic!r} version {version}")
        connection.sendall(_proof(secret, own_role, own, other))
        proof = bytes(read_exactly(connection, _PROOF_BYTES))
    except (OSError, EOFError) as error:
        raise HandshakeError(f"the connection ended during the handshake ({error or type(error).__name__})") from error
    if not hmac.compare_digest(_proof(secret, other_role, other, own), proof):
        raise HandshakeError("the other end does not know this job's secret")
    return Hello(other_rank, other_channel.rstrip(b"\0").decode())


def _proof(secret: bytes, role: bytes, own: bytes, other: bytes) -> bytes:
    return hmac.digest(secret, role + own + other, hashlib.sha256)
