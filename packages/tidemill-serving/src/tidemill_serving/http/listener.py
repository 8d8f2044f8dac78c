"""Listening sockets: accept connections, enforce their time limits, drain them at the end."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from tidemill_serving.errors import StartFailed
from tidemill_serving.http.limits import Limits
from tidemill_serving.http.message import Application
from tidemill_serving.http.protocol import HttpProtocol
from tidemill_serving.http.traffic import Traffic, http_date

__all__ = ["Listener", "bind_tcp", "bind_unix"]

_BACKLOG = 1024
_TICK_S = 1.0


class Listener:
    """Serves HTTP on any number of sockets.

    Args:
        application: Answers requests.
        limits: See `Limits`.
        loop: The running event loop.
    """

    def __init__(self, application: Application, *, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        self.traffic = Traffic(application, limits=limits, now_s=loop.time)
        self._loop = loop
        self._servers: list[asyncio.Server] = []
        self._ticker: asyncio.TimerHandle | None = None

    async def open(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket."""
        if sock.family == socket.AF_UNIX:
            server = await self._loop.create_unix_server(
                lambda: HttpProtocol(self.traffic), sock=sock, backlog=_BACKLOG
            )
        else:
            server = await self._loop.create_server(lambda: HttpProtocol(self.traffic), sock=sock, backlog=_BACKLOG)
        self._servers.append(server)
        if self._ticker is None:
            self._tick()

    async def drain(self, *, grace_s: float, timeout_s: float) -> bool:
        """Stop in order: each connection ends with its next answer, and idle ones are closed.

        Args:
            grace_s: New connections are still accepted for that time, because whoever sends them has yet to see that
                the server is not ready any more.
            timeout_s: Most time for requests that are under way.

        Returns:
            Whether every request was answered.
        """
        self.traffic.draining = True
        await asyncio.sleep(grace_s)
        for server in self._servers:
            server.close()
        for connection in list(self.traffic.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while any(connection.busy for connection in self.traffic.connections):
                    self.traffic.ended.clear()
                    await self.traffic.ended.wait()
        in_time = not any(connection.busy for connection in self.traffic.connections)
        for connection in list(self.traffic.connections):
            connection.close() if in_time else connection.abort()
        if self._ticker is not None:
            self._ticker.cancel()
        return in_time

    def _tick(self) -> None:
        self.traffic.date = http_date()
        now_s = self.traffic.now_s()
        for connection in list(self.traffic.connections):
            connection.tick(now_s)
        self._ticker = self._loop.call_later(_TICK_S, self._tick)


def bind_tcp(host: str, port: int) -> socket.socket:
    """Bind a TCP socket; port 0 takes a free one.

    Raises:
        StartFailed: The address is in use, or not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise StartFailed(f"cannot listen on {host} port {port}: {error}; choose another with --port") from error
    return sock


def bind_unix(path: Path) -> socket.socket:
    """Bind a unix socket that only this user may connect to. A socket without a listener at that path is replaced.

    Raises:
        StartFailed: The path cannot be used, or another server listens there.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(path) as short:
            _remove_stale(short, path)
            mask = os.umask(0o177)
            try:
                sock.bind(short)
            finally:
                os.umask(mask)
    except OSError as error:
        sock.close()
        raise StartFailed(f"cannot listen on the unix socket {path}: {error}") from error
    except StartFailed:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """A short name of a path: a socket address holds 108 bytes, directories of jobs are longer."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _remove_stale(short: str, path: Path) -> None:
    try:
        mode = os.lstat(short).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartFailed(f"cannot listen on the unix socket {path}: it exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(short)
        except ConnectionRefusedError:
            os.unlink(short)  # noqa: PTH108  # the name is one of /proc
        else:
            raise StartFailed(f"cannot listen on the unix socket {path}: another server listens there")
