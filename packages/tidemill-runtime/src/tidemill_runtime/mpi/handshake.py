"""Authenticated messages over TCP between the instances of a job, which share a secret.

Both sides prove with an HMAC-SHA-256 of fresh random numbers that they know the secret; the secret itself is never
sent. Every message then carries an HMAC with a key of this connection, the direction and the number of the message, so
that changed, inserted and repeated messages are refused. Messages are encrypted only if the connection is
(`Addresses.secured`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket

MAX_MESSAGE_BYTES = 16 << 20
NUM_PORTS = 16
"""Number of ports that an instance tries, since other jobs may use some."""
_FIRST_PORT, _PORTS = 21000, 8000  # below the ports of outgoing connections, above those of Ray's workers
_RANDOM_BYTES = 32
_HASH_BYTES = 32
_HEAD = struct.Struct("!I32s")


def port_of(secret: bytes, host: str, number: int) -> int:
    """Return the ``number``-th port at which an instance may listen, which every other instance can compute."""
    return _FIRST_PORT + int.from_bytes(_mac(secret, b"port", host.encode(), str(number).encode())[:4], "big") % _PORTS


class SupervisorConnection:
    """A connection on which both sides have proved that they know the secret.

    Args:
        raw: The socket; closed with the connection.
        own: Direction of the messages that this side sends, ``a`` or ``b``.
    """

    def __init__(self, raw: socket.socket, key: bytes, *, own: bytes) -> None:
        self.raw = raw
        self._key = key
        self._own, self._other = own, b"b" if own == b"a" else b"a"
        self._sent = self._received = 0

    def send(self, content: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            OSError: The other side has closed the connection.
        """
        body = json.dumps(content).encode("ascii")
        self.raw.sendall(_HEAD.pack(len(body), self._mac_of(self._own, self._sent, body)) + body)
        self._sent += 1

    def receive(self) -> dict[str, Any] | None:
        """Receive one message; None at the end of the stream.

        Raises:
            ValueError: The received bytes are not a message of the other side.
            OSError: The other side has closed the connection, or is too slow.
        """
        head = _read(self.raw, _HEAD.size, or_end=True)
        if not head:
            return None
        size_bytes, mac = _HEAD.unpack(head)
        if size_bytes > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {size_bytes} bytes; at most {MAX_MESSAGE_BYTES} are allowed")
        body = _read(self.raw, size_bytes)
        if not hmac.compare_digest(mac, self._mac_of(self._other, self._received, body)):
            raise ValueError("a message that the other instance did not send")
        self._received += 1
        content: dict[str, Any] = json.loads(body)
        return content

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self.raw.close()

    def _mac_of(self, direction: bytes, number: int, body: bytes) -> bytes:
        return _mac(self._key, direction, str(number).encode(), body)


def ask(raw: socket.socket, *, secret: bytes, host: str) -> SupervisorConnection:
    """Perform the handshake as the side that connected to ``host``.

    Raises:
        ValueError: The other side is not that instance of the job.
        OSError: The other side has closed the connection, or is too slow.
    """
    other_random = _read(raw, _RANDOM_BYTES)
    own_random = os.urandom(_RANDOM_BYTES)
    parts = (host.encode(), other_random, own_random)
    raw.sendall(own_random + _mac(secret, b"ask", *parts))
    if not hmac.compare_digest(_read(raw, _HASH_BYTES), _mac(secret, b"answer", *parts)):
        raise ValueError(f"what listens is not {host} of this job")
    return SupervisorConnection(raw, _mac(secret, b"key", *parts), own=b"a")


def answer(raw: socket.socket, *, secret: bytes, host: str) -> SupervisorConnection:
    """Perform the handshake as the side that listens as ``host``.

    Raises:
        ValueError: The other side does not know the job's secret.
        OSError: The other side has closed the connection, or is too slow.
    """
    own_random = os.urandom(_RANDOM_BYTES)
    raw.sendall(own_random)
    other_random = _read(raw, _RANDOM_BYTES)
    parts = (host.encode(), own_random, other_random)
    if not hmac.compare_digest(_read(raw, _HASH_BYTES), _mac(secret, b"ask", *parts)):
        raise ValueError("a stranger")
    raw.sendall(_mac(secret, b"answer", *parts))
    return SupervisorConnection(raw, _mac(secret, b"key", *parts), own=b"b")


def _mac(key: bytes, *parts: bytes) -> bytes:
    framed = b"".join(struct.pack("!I", len(part)) + part for part in parts)
    return hmac.new(key, framed, hashlib.sha256).digest()


def _read(raw: socket.socket, size_bytes: int, *, or_end: bool = False) -> bytes:
    data = b""
    while len(data) < size_bytes:
        part = raw.recv(size_bytes - len(data))
        if not part:
            if or_end and not data:
                return b""
            raise ValueError("the stream ends inside of a message")
        data += part
    return data
