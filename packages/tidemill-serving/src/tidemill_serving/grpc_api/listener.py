"""Listening sockets of the gRPC server: accept connections, enforce their time limits, drain them at the end."""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress

from tidemill_serving.errors import StartFailed
from tidemill_serving.grpc_api.connection import GrpcConnection
from tidemill_serving.grpc_api.traffic import GrpcTraffic
from tidemill_serving.http.listener import bind_tcp

_BACKLOG = 2048
_TICK_S = 1.0
_ANNOUNCED_S = 1.0  # time that clients have to acknowledge the announcement


class GrpcListener:
    """Accept gRPC connections.

    Args:
        traffic: State that all connections share.
    """

    def __init__(self, traffic: GrpcTraffic) -> None:
        self._traffic = traffic
        self._server: asyncio.AbstractServer | None = None
        self._ticker: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket.

        Args:
            sock: Bound TCP or Unix socket; the listener closes it at the end.
        """
        self._traffic.ended.set()
        self._server = await self._traffic.loop.create_server(
            lambda: GrpcConnection(self._traffic), sock=sock, backlog=_BACKLOG
        )
        self._tick()

    async def drain(self, *, timeout_s: float) -> bool:
        """Accept no more connections and calls, and wait for calls in progress.

        Returns:
            Whether every call was answered.
        """
        traffic = self._traffic
        if self._server is not None:
            self._server.close()
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

    def _stop(self) -> None:
        for connection in list(self._traffic.connections):
            connection.stop()

    def _tick(self) -> None:
        now_s = self._traffic.loop.time()
        for connection in list(self._traffic.connections):
            connection.tick(now_s)
        self._ticker = self._traffic.loop.call_later(_TICK_S, self._tick)


def bind_first(host: str, ports: Iterable[int]) -> socket.socket:
    """Bind a TCP socket to the first free port.

    Args:
        host: Address to listen on.
        ports: Ports to try, in order; 0 means any free port.

    Raises:
        StartFailed: None of the ports is free.
    """
    for port in ports:
        with suppress(StartFailed):
            return bind_tcp(host, port)
    raise StartFailed(f"cannot listen for gRPC on {host}: no port of {ports} is free")
