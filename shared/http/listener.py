"""Listening sockets: accept connections, enforce their time limits, drain them at the end."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl

from .connection import Connection
from .exchange import Application
from .limits import Traffic

__all__ = ["Listener"]

_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 8
"""Connections accepted in one turn of the event loop: uvloop accepts one per turn and descriptor of a socket.

With one, a busy loop accepts connections more slowly than they arrive, and the operating system drops the rest."""
_TICK_S = 1.0
_CHECKED_AT_ONCE = 500
_HANDSHAKE_S = 15.0


class Listener:
    """Serves HTTP on any number of sockets.

    Args:
        application: Answers requests.
        traffic: See `Traffic`.
        loop: The running event loop.
    """

    def __init__(self, application: Application, traffic: Traffic, *, loop: asyncio.AbstractEventLoop) -> None:
        self.traffic = traffic
        self._application = application
        self._loop = loop
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.AbstractServer] = []
        self._unchecked: list[Connection] = []
        self._pause_s = _TICK_S
        self._ticker: asyncio.TimerHandle | None = None

    def connect(self) -> Connection:
        """Return the protocol of a new connection."""
        connection = Connection(self._application, self.traffic, self._connections)
        self._connections.add(connection)
        if self._ticker is None:
            self._tick()
        return connection

    async def open(self, sock: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket, TCP or unix.

        Args:
            sock: A bound socket.
            tls: TLS context with certificate and key; None for plain HTTP.
        """
        create = self._loop.create_unix_server if sock.family == socket.AF_UNIX else self._loop.create_server
        timeout_s = _HANDSHAKE_S if tls else None
        for each in (sock, *(sock.dup() for _ in range(_ACCEPTED_AT_ONCE - 1))):
            server = await create(self.connect, sock=each, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=timeout_s)
            self._servers.append(server)

    async def drain(self, *, grace_s: float, timeout_s: float) -> bool:
        """Stop gracefully: close idle connections, and close each other connection after its next answer.

        Args:
            grace_s: Seconds during which new connections are still accepted, because clients do not know yet that the
                server is stopping.
            timeout_s: Maximum time for running requests, in seconds.

        Returns:
            Whether every request was answered.
        """
        self.traffic.draining = True
        await asyncio.sleep(grace_s)
        for server in self._servers:
            server.close()
        for connection in [each for each in self._connections if not each.busy]:
            connection.close()
        busy = [connection.ending() for connection in self._connections if connection.busy]
        if busy:
            await asyncio.wait(busy, timeout=timeout_s)
        in_time = not any(connection.busy for connection in self._connections)
        for connection in list(self._connections):
            connection.close() if in_time else connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()
        return in_time

    def _tick(self) -> None:
        """Enforce the time limits of each connection once a second, in small groups, so that no request waits long."""
        if not self._unchecked:
            self.traffic.renew_date()
            self._unchecked = list(self._connections)
            self._pause_s = _TICK_S / max(1, math.ceil(len(self._unchecked) / _CHECKED_AT_ONCE))
        now_s = self.traffic.now_s()
        for connection in self._unchecked[-_CHECKED_AT_ONCE:]:
            if connection in self._connections:
                connection.tick(now_s)
        del self._unchecked[-_CHECKED_AT_ONCE:]
        self._ticker = self._loop.call_later(self._pause_s, self._tick) if self._connections else None
