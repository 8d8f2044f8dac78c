"""The listener of an endpoint, which collects and decompresses whole requests, and its TCP and unix sockets."""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Generator
from pathlib import Path

from tidemill_serving._shared.http.exchange import Application as Exchanges
from tidemill_serving._shared.http.exchange import Exchange
from tidemill_serving._shared.http.limits import Limits, Traffic
from tidemill_serving._shared.http.listener import Listener
from tidemill_serving.errors import RequestError, StartFailed
from tidemill_serving.http.body import decode_body
from tidemill_serving.http.message import Application, HttpRequest, Response, error_response, refusal_form


def new_listener(application: Application, *, limits: Limits, loop: asyncio.AbstractEventLoop) -> Listener:
    """Return a listener that answers with an application. It accepts connections after `Listener.open`.

    Args:
        application: Answers each exchange, on the event loop.
        limits: Sizes, times and connections.
        loop: The event loop, whose time is used.

    Returns:
        A listener that is not open yet.
    """
    traffic = Traffic(limits, streams=False, refusal_form=refusal_form, now_s=loop.time)
    return Listener(_exchanges(application, limit_bytes=limits.body_bytes), traffic, loop=loop)


def _exchanges(application: Application, *, limit_bytes: int) -> Exchanges:
    def answer(exchange: Exchange) -> None:
        def reply(response: Response) -> None:
            exchange.reply(
                response.status, ((b"Content-Type", response.content_type), *response.headers), response.body
            )

        def is_over() -> bool:
            return exchange.gone or exchange.answered

        body = exchange.take()
        encoding = exchange.fields.get(b"content-encoding")
        if encoding is not None:
            try:
                body = decode_body(body, encoding, limit_bytes=limit_bytes)
            except RequestError as error:
                reply(error_response(error))
                return
            exchange.hold(len(body) - exchange.held_bytes)
        application(HttpRequest(exchange.method, exchange.target, exchange.fields, body, is_over), reply)

    return answer


def bind_tcp(host: str, port: int) -> socket.socket:
    """Bind a TCP socket; port 0 means any free port.

    Raises:
        StartFailed: The address is in use, or is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except (OSError, OverflowError) as error:
        sock.close()
        raise StartFailed(f"cannot listen on {host} port {port}: {error}; choose another port") from error
    return sock


def bind_unix(path: Path) -> socket.socket:
    """Bind a unix socket that only this user may connect to; replace a stale socket at that path.

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
def _short_path(path: Path) -> Generator[str]:
    """Provide a short name of a path: a socket address holds 108 bytes, and paths of job directories are longer."""
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
        probe.setblocking(False)  # a server that accepts nothing more would be waited for
        try:
            probe.connect(short)
        except BlockingIOError:
            raise StartFailed(f"cannot listen on the unix socket {path}: a busy server listens there") from None
        except ConnectionRefusedError:
            os.unlink(short)  # noqa: PTH108  # the name is one of /proc
        else:
            raise StartFailed(f"cannot listen on the unix socket {path}: another server listens there")
