"""Listening sockets: accept connections, enforce their time limits, drain them at the end."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections.abc import Callable
from functools import partial

from .connection import Connection
from .exchange import Application
from .limits import Traffic
from .room import OwnerOf, Room

_BACKLOG = 2048
_ACCEPTED_AT_ONCE = 8
"""Connections accepted in one turn of the event loop: uvloop accepts one per turn and descriptor of a socket.

With one, a busy loop accepts connections more slowly than they arrive, and the operating system drops the rest."""
_TICK_S = 1.0
_CHECKED_AT_ONCE = 500
_HANDSHAKE_S = 5.0
_ACCEPT_PAUSE_S = 0.2  # after an error, e.g. too many open files


class Listener:
    """Serves HTTP on any number of sockets.

    Args:
        application: Answers requests.
        traffic: See `Traffic`.
        loop: The running event loop.
        owner_of: See `Room`.
    """

    def __init__(
        self,
        application: Application,
        traffic: Traffic,
        *,
        loop: asyncio.AbstractEventLoop,
        owner_of: OwnerOf | None = None,
    ) -> None:
        self.traffic = traffic
        self._application = application
        self._loop = loop
        self._connections = Room(traffic.limits, now_s=traffic.now_s, owner_of=owner_of)
        self._stop_accepting: list[Callable[[], object]] = []
        self._unchecked: list[Connection] = []
        self._pause_s = _TICK_S
        self._ticker: asyncio.TimerHandle | None = None
        self._quiet = True  # no new connection since the last tick

    async def open(self, sock: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket, TCP or unix.

        Args:
            tls: TLS context with certificate and key; None for plain HTTP.
        """
        if tls is not None:
            sock.listen(_BACKLOG)
            sock.setblocking(False)
            self._loop.add_reader(sock.fileno(), self._accept, sock, tls)
            self._stop_accepting.append(partial(self._loop.remove_reader, sock.fileno()))
            return
        create = self._loop.create_unix_server if sock.family == socket.AF_UNIX else self._loop.create_server
        for each in (sock, *(sock.dup() for _ in range(_ACCEPTED_AT_ONCE - 1))):
            server = await create(self._connect, sock=each, backlog=_BACKLOG)
            self._stop_accepting.append(server.close)

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
        for stop in self._stop_accepting:
            stop()
        self._stop_accepting.clear()
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

    def _connect(self) -> Connection:
        connection = Connection(self._application, self.traffic, self._connections)
        self._quiet = False
        if self._ticker is None:
            self.traffic.renew_date()
            self._ticker = self._loop.call_later(_TICK_S, self._tick)
        return connection

    def _accept(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        """Accept connections before their handshakes, so that unfinished handshakes count, too."""
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, peer = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(sock.fileno())
                self._loop.call_later(_ACCEPT_PAUSE_S, self._accept_again, sock, tls)
                return
            client.setblocking(False)
            connection = self._connect()
            if self._connections.enter(connection, peer=peer, own=client.getsockname()):
                connection.handshake = self._loop.create_task(self._shake_hands(connection, client, tls))
                connection.handshake.add_done_callback(partial(_close_unstarted, client))
            else:
                self._connections.leave(connection)
                client.close()

    def _accept_again(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        if self._stop_accepting:
            self._loop.add_reader(sock.fileno(), self._accept, sock, tls)

    async def _shake_hands(self, connection: Connection, client: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection, client, ssl=tls, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except (OSError, asyncio.CancelledError):
            # Too slow, not TLS, the client left, or another connection took its place.
            self._connections.leave(connection)
        finally:
            connection.handshake = None

    def _tick(self) -> None:
        """Enforce the time limits of each connection once a second, in small groups, so that no request waits long."""
        if not self._unchecked:
            self.traffic.renew_date()
            self._connections.trim()
            self._unchecked = list(self._connections)
            self._pause_s = _TICK_S / max(1, math.ceil(len(self._unchecked) / _CHECKED_AT_ONCE))
        now_s = self.traffic.now_s()
        for connection in self._unchecked[-_CHECKED_AT_ONCE:]:
            if connection in self._connections:
                connection.tick(now_s)
        del self._unchecked[-_CHECKED_AT_ONCE:]
        goes_on = len(self._connections) > 0 or not self._quiet
        self._ticker = self._loop.call_later(self._pause_s, self._tick) if goes_on else None
        self._quiet = True


def _close_unstarted(client: socket.socket, handshake: asyncio.Task[None]) -> None:
    if handshake.cancelled():  # before its first step: once it runs, it ends without an error
        client.close()
