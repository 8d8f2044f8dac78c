"""Sockets that are used without asyncio's transports."""

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

from tidemill.core.socket_paths import short_path

NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket that does not block raises when it can neither send nor receive at the moment."""
_CHUNK_BYTES = 256 * 1024
_RECORD_BYTES = 16 * 1024
"""Largest piece in which TLS sends, and hands out what it has received."""


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of an IP address.

    Args:
        host: For example ``10.0.0.1`` or ``fd00::1``.
    """
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def connect_unix(path: Path) -> socket.socket:
    """Return a connection to a unix socket, which does not block. Does not wait.

    Raises:
        OSError: Nobody listens, or the queue of those who wait to be accepted is full.
    """
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        with short_path(path) as address:
            sock.connect(address)
    except OSError:
        sock.close()
        raise
    return sock


async def shake_hands(tls: ssl.SSLSocket) -> None:
    """Wait until a connection is encrypted.

    Args:
        tls: A socket that does not block.

    Raises:
        OSError: The peer speaks no TLS, or has another certificate than expected.
    """
    while True:
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            return
        await readable(tls)


async def readable(sock: socket.socket) -> None:
    """Wait until a socket has received something, or its connection has ended.

    Args:
        sock: A socket to which nothing else listens in the running event loop.
    """
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sock)


def send_now(sock: socket.socket, data: memoryview) -> int:
    """Send as much as is possible without waiting. Return how many bytes that is.

    Args:
        sock: A socket that does not block.

    Raises:
        OSError: The connection has ended.
    """
    sent = 0
    with contextlib.suppress(*NOT_NOW):
        while sent < len(data):
            sent += sock.send(data[sent : sent + _CHUNK_BYTES])
    return sent


def receive_now(sock: socket.socket) -> bytes:
    """Return what has arrived, at most a few hundred kilobytes; nothing at the end of the connection.

    Args:
        sock: A socket that does not block.

    Raises:
        OSError: The connection has ended, or nothing has arrived (one of `NOT_NOW`).
    """
    data = sock.recv(_CHUNK_BYTES)
    if len(data) != _RECORD_BYTES:
        return data
    parts = [data]
    with contextlib.suppress(*NOT_NOW):
        while len(parts[-1]) == _RECORD_BYTES and len(parts) * _RECORD_BYTES < _CHUNK_BYTES:
            parts.append(sock.recv(_CHUNK_BYTES))
    return b"".join(parts)
