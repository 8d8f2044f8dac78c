"""Post one document to a receiver: no redirects, no proxies, and one time limit for everything."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cache
from urllib.parse import urlsplit

from tidemill import __version__

TIMEOUT_S = 10.0
_STATUS_LINE_MAX = 4096


class NotDelivered(Exception):
    """The receiver did not accept the document; the message says why."""


async def post(url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> int:
    """Post a document of JSON and return the status of the answer, whose body is not read.

    Args:
        url: Address of the receiver.
        body: The document.

    Raises:
        NotDelivered: There is no connection, or no answer in time.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(url, body, headers)
    except TimeoutError:
        raise NotDelivered(f"no answer within {timeout_s:g} s") from None
    except (OSError, ValueError, asyncio.IncompleteReadError) as error:
        raise NotDelivered(str(error) or type(error).__name__) from error


async def _exchange(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    parts = urlsplit(url)
    tls = await asyncio.to_thread(_trusted) if parts.scheme == "https" else None
    reader, writer = await _connected(parts.hostname or "", parts.port or (443 if tls else 80), tls)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = {
            "host": parts.netloc,
            "user-agent": f"tidemill/{__version__}",
            "content-type": "application/json",
            "content-length": str(len(body)),
            "connection": "close",
            **headers,
        }
        head = f"POST {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        writer.write(head.encode("ascii") + b"\r\n" + body)
        await writer.drain()
        return await _status(reader)
    finally:
        writer.close()


async def _connected(
    host: str, port: int, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure = OSError(f"{host} has no address")
    for address in await asyncio.wrap_future(_addresses(host, port)):
        try:
            return await asyncio.open_connection(
                address, port, ssl=tls, server_hostname=host if tls else None, limit=_STATUS_LINE_MAX
            )
        except OSError as error:
            failure = error
    raise failure


def _addresses(host: str, port: int) -> "Future[list[str]]":
    """Look a name up in a thread of its own, which neither the end of the loop nor that of the process waits for.

    The loop has few threads for all lookups of the process: while no name server answers, which takes half a minute
    each time, those of webhooks would hold up every other one.
    """
    found: Future[list[str]] = Future()
    found.set_running_or_notify_cancel()

    def look_up() -> None:
        try:
            addresses = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
        except Exception as error:  # noqa: BLE001 - told to the caller
            found.set_exception(error)
        else:
            found.set_result(addresses)

    threading.Thread(target=look_up, name="webhook lookup", daemon=True).start()
    return found


async def _status(reader: asyncio.StreamReader) -> int:
    while True:
        protocol, _, rest = (await reader.readuntil(b"\n")).partition(b" ")
        status = int(rest[:3])
        if not protocol.startswith(b"HTTP/1.") or not 100 <= status <= 599:
            raise ValueError("the answer is not HTTP")
        if status >= 200:
            return status
        while (await reader.readuntil(b"\n")).strip():  # the head of an interim answer
            pass


@cache
def _trusted() -> ssl.SSLContext:
    """Return the context with the machine's authorities, whose files take 20 ms to read."""
    return ssl.create_default_context()
