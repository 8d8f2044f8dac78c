"""Encrypt a connection with TLS for code that reads and writes plain sockets, including native code.

The code gets one end of a local socket pair. A thread reads the other end and sends its bytes encrypted to the peer.
The same thread decrypts the bytes of the peer. When the process exits, bytes already written are still delivered.
"""

from __future__ import annotations

import array
import atexit
import fcntl
import os
import select
import socket
import ssl
import termios
import threading
import time
import weakref
from contextlib import suppress

from .tls import tls_context

_CHUNK_BYTES = 1 << 18
_FLUSH_S = 5.0
_LOOK_S = 0.005
_tunnels: weakref.WeakSet[_Tunnel] = weakref.WeakSet()


def enclose(raw: socket.socket, secret: bytes, *, server: bool, timeout_s: float) -> socket.socket:
    """Return a local socket whose bytes are sent encrypted over ``raw``. The tunnel owns ``raw`` from now on.

    Args:
        raw: A connection to a peer that calls this function as well.
        secret: The secret that both sides share.
        server: True on the side that accepted the connection.
        timeout_s: Time limit of the handshake, in seconds.

    Raises:
        OSError: The peer does not have the secret, does not use TLS, or is too slow. ``raw`` is closed.
    """
    inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = tls_context(secret, server=server).wrap_bio(inside, outside, server_side=server)
    try:
        raw.settimeout(timeout_s)
        _shake(raw, tls, inside, outside)
    except OSError:
        raw.close()
        raise
    with suppress(OSError):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    near, far = socket.socketpair()
    tunnel = _Tunnel(raw, far, tls, inside, outside)
    _tunnels.add(tunnel)
    threading.Thread(target=tunnel.run, name="tls-tunnel", daemon=True).start()
    return near


def _shake(raw: socket.socket, tls: ssl.SSLObject, inside: ssl.MemoryBIO, outside: ssl.MemoryBIO) -> None:
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            raw.sendall(outside.read())
            data = raw.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionResetError("the other side has closed the connection during the handshake") from None
            inside.write(data)
        except ssl.SSLError:
            with suppress(OSError):
                raw.sendall(outside.read())  # the TLS alert with the reason
            raise
        else:
            raw.sendall(outside.read())
            return


class _Tunnel:
    def __init__(
        self, raw: socket.socket, far: socket.socket, tls: ssl.SSLObject, inside: ssl.MemoryBIO, outside: ssl.MemoryBIO
    ) -> None:
        self._raw = raw
        self._far = far
        self._tls = tls
        self._inside = inside
        self._outside = outside
        self._to_peer = memoryview(b"")
        self._to_here = memoryview(b"")
        self._peer_sends = self._here_sends = True
        self._encrypts = False

    def run(self) -> None:
        """Forward bytes until both directions have ended."""
        self._raw.setblocking(False)
        self._far.setblocking(False)
        try:
            self._decrypt()  # data that arrived together with the last bytes of the handshake
            while self._peer_sends or self._here_sends or self._to_peer or self._to_here:
                self._await()
                self._send()
                self._receive()
        except OSError:
            pass  # the connection broke; closing both sockets reports it to both ends
        finally:
            self.close()

    def close(self) -> None:
        """Close both sockets."""
        self._far.close()
        self._raw.close()

    def holds_bytes(self) -> bool:
        """Return whether locally written bytes have not been sent yet."""
        waiting = array.array("i", [0])
        try:
            fcntl.ioctl(self._far, termios.FIONREAD, waiting)
        except (OSError, ValueError):  # closed
            return False
        return bool(waiting[0] or self._encrypts or self._to_peer)  # in the order in which bytes pass through them

    def _await(self) -> None:
        poll = select.poll()
        for sock, reads, writes in (
            (self._raw, self._peer_sends and not self._to_here, self._to_peer),
            (self._far, self._here_sends and not self._to_peer, self._to_here),
        ):
            events = (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)
            if events:
                poll.register(sock, events)
        poll.poll()

    def _send(self) -> None:
        """Encrypt local bytes and send them to the peer."""
        if self._here_sends and not self._to_peer:
            self._encrypts = True
            data = _read(self._far)
            if data:
                self._tls.write(data)
                self._to_peer = memoryview(self._outside.read())
            self._encrypts = False
            if data == b"":
                self._here_sends = False
                self._raw.shutdown(socket.SHUT_WR)
        if self._to_peer:
            self._to_peer = self._to_peer[_write(self._raw, self._to_peer) :]

    def _receive(self) -> None:
        """Decrypt the peer's bytes and deliver them locally."""
        if self._peer_sends and not self._to_here:
            data = _read(self._raw)
            if data:
                self._inside.write(data)
                self._decrypt()
            elif data is not None:
                self._peer_sends = False
        if self._to_here:
            try:
                self._to_here = self._to_here[_write(self._far, self._to_here) :]
            except OSError:  # the local reader has closed its end; bytes that it has written are still sent
                self._to_here, self._peer_sends = memoryview(b""), False
        if not self._peer_sends and not self._to_here:
            with suppress(OSError):
                self._far.shutdown(socket.SHUT_WR)

    def _decrypt(self) -> None:
        parts = []
        with suppress(ssl.SSLWantReadError):
            while True:
                part = self._tls.read(_CHUNK_BYTES)
                if not part:
                    break
                parts.append(part)
        self._to_here = memoryview(b"".join(parts))


def _read(sock: socket.socket) -> bytes | None:
    """Return the bytes available now; empty at the end of the stream; None if no bytes are available."""
    try:
        return sock.recv(_CHUNK_BYTES)
    except (BlockingIOError, InterruptedError):
        return None


def _write(sock: socket.socket, data: memoryview) -> int:
    try:
        return sock.send(data)
    except (BlockingIOError, InterruptedError):
        return 0


def _flush() -> None:
    """Wait until the bytes written before the exit are sent, for at most `_FLUSH_S` seconds."""
    deadline_s = time.monotonic() + _FLUSH_S
    while any(tunnel.holds_bytes() for tunnel in list(_tunnels)) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)


def _forget() -> None:
    """Close the tunnels in a forked child, because the connections belong to the parent."""
    for tunnel in list(_tunnels):
        tunnel.close()
    _tunnels.clear()


atexit.register(_flush)
os.register_at_fork(after_in_child=_forget)
