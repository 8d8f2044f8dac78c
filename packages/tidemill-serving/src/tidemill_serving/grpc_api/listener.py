"""Listening sockets of the gRPC server: accept connections, enforce their time limits, drain them at the end."""

import asyncio
import functools
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemill_serving.errors import StartFailed
from tidemill_serving.grpc_api.connection import GrpcConnection
from tidemill_serving.grpc_api.traffic import GrpcTraffic
from tidemill_serving.http.listener import bind_tcp, bind_unix

_BACKLOG = 2048
_TICK_S = 1.0
_ANNOUNCED_S = 1.0  # time that clients have to acknowledge the announcement
_HANDSHAKE_S = 5.0
_ACCEPTED_AT_ONCE = 8
_ACCEPT_PAUSE_S = 0.2  # after an error, e.g. too many open files


class GrpcListener:
    """Accept gRPC connections.

    Args:
        traffic: State that all connections share.
    """

    def __init__(self, traffic: GrpcTraffic) -> None:
        self._traffic = traffic
        self._stop_accepting: list[Callable[[], object]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._ticker: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket, *, tls: ssl.SSLContext | None = None) -> None:
        """Accept connections on a bound socket.

        Args:
            sock: Bound TCP or Unix socket; the listener closes it at the end.
            tls: Certificate and key; None for connections without TLS.
        """
        traffic = self._traffic
        if not traffic.connections:
            traffic.ended.set()
        if tls is not None:
            sock.listen(_BACKLOG)
            sock.setblocking(False)
            self._accept_again(sock, tls)
            self._stop_accepting += [functools.partial(traffic.loop.remove_reader, sock.fileno()), sock.close]
        else:
            create = traffic.loop.create_unix_server if sock.family == socket.AF_UNIX else traffic.loop.create_server
            server = await create(lambda: GrpcConnection(traffic), sock=sock, backlog=_BACKLOG)
            self._stop_accepting.append(server.close)
        if self._ticker is None:
            self._tick()

    async def drain(self, *, timeout_s: float) -> bool:
        """Accept no more connections and calls, and wait for calls in progress.

        Returns:
            Whether every call was answered.
        """
        traffic = self._traffic
        for stop in self._stop_accepting:
            stop()
        self._stop_accepting.clear()
        for handshake in list(self._handshakes):
            handshake.cancel()
        for connection in list(traffic.connections):
            connection.announce_end()
        last_calls = traffic.loop.call_later(min(_ANNOUNCED_S, timeout_s), self._stop)
        try:
            async with asyncio.timeout(timeout_s):
                await traffic.ended.wait()
        except TimeoutError:
            pass
        last_calls.cancel()
        in_time = not any(connection.busy for connection in traffic.connections)
        for connection in list(traffic.connections):
            connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()
        return in_time

    def _accept(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        """Accept connections before their handshakes, so that unfinished handshakes count as connections."""
        traffic = self._traffic
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client = sock.accept()[0]
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:
                traffic.loop.remove_reader(sock.fileno())
                traffic.loop.call_later(_ACCEPT_PAUSE_S, self._accept_again, sock, tls)
                return
            if len(traffic.connections) + len(self._handshakes) >= traffic.limits.connections:
                client.close()
                continue
            client.setblocking(False)
            handshake = traffic.loop.create_task(self._shake_hands(client, tls))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    def _accept_again(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        if sock.fileno() >= 0:
            self._traffic.loop.add_reader(sock.fileno(), self._accept, sock, tls)

    async def _shake_hands(self, client: socket.socket, tls: ssl.SSLContext) -> None:
        try:
            await self._traffic.loop.connect_accepted_socket(
                lambda: GrpcConnection(self._traffic), client, ssl=tls, ssl_handshake_timeout=_HANDSHAKE_S
            )
        except OSError:
            client.close()  # too slow, not TLS, without a certificate, or the client left

    def _stop(self) -> None:
        for connection in list(self._traffic.connections):
            connection.stop()

    def _tick(self) -> None:
        now_s = self._traffic.loop.time()
        for connection in list(self._traffic.connections):
            connection.tick(now_s)
        self._ticker = self._traffic.loop.call_later(_TICK_S, self._tick)


def bind_all(host: str, ports: Sequence[int], path: Path | None) -> tuple[int, list[socket.socket]]:
    """Bind the sockets of a server.

    Args:
        host: Address to listen on.
        ports: Ports to try, in order; 0 means any free port; none for no port.
        path: Unix socket; None for none.

    Returns:
        The port, 0 if there is none, and the sockets.

    Raises:
        StartFailed: None of the ports is free, or the path cannot be used.
    """
    socks = [] if path is None else [bind_unix(path)]
    if not ports:
        return 0, socks
    reasons = []
    for port in ports:
        try:
            socks.append(bind_tcp(host, port))
        except StartFailed as error:
            reasons.append(str(error))
        else:
            return int(socks[-1].getsockname()[1]), socks
    for sock in socks:
        sock.close()
    raise StartFailed(f"cannot listen for gRPC on any of {len(ports)} ports; the last one: {reasons[-1]}")
