"""An answer that is ready for HTTP, and how it is sent over ASGI: bytes at once, files and streams in pieces."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import Receive
from tidemill.wire.exchange import FileBody

__all__ = ["HttpReply", "ReplyBody", "Send", "header_pairs", "send_reply"]

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ReplyBody = bytes | FileBody | AsyncIterator[bytes]

_PIECE_BYTES = 512 * 1024
_INLINE_BYTES = 64 * 1024
"""Maximum size of files that are read in the event loop: for these a thread costs more than the read."""


@dataclass(slots=True)
class HttpReply:
    """An HTTP answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    """Names in lower case, without content-length and connection, which the sender sets."""
    body: ReplyBody = b""
    content_length: int | None = None
    """Announced size for a HEAD, or for a stream of known size."""


def header_pairs(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Encode headers as bytes. Control characters are refused, because data could forge headers with them.

    Raises:
        AwsError: InvalidArgument (400).
    """
    pairs: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if not value.isprintable() and any(
            (ord(letter) < 32 and letter != "\t") or ord(letter) == 127 for letter in value
        ):
            raise AwsError(
                f"The value of the reply header {name} would hold a control character: {value[:128]!r}.",
                code="InvalidArgument",
                status=400,
            )
        pairs.append((name.lower().encode("latin-1"), value.encode("utf-8")))
    return pairs


async def send_reply(send: Send, receive: Receive, reply: HttpReply, *, is_head: bool, close: bool) -> None:
    """Send status, headers and body; stop when the client disconnects.

    Args:
        send: ASGI's send.
        receive: ASGI's receive; while a body is streamed it reports a disconnect. Not used if ``close`` is set, because
            then the request's body was not read.
        reply: The reply.
        is_head: Announce the size, but send no body.
        close: Close the connection afterwards.
    """
    headers = reply.headers
    length = _length(reply)
    if length is not None and reply.status not in (204, 304):
        headers.append((b"content-length", str(length).encode("ascii")))
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    body = b"" if is_head else reply.body
    if isinstance(body, bytes):
        await send({"type": "http.response.body", "body": body, "more_body": False})
        return
    pieces = _file_pieces(body) if isinstance(body, FileBody) else body
    if close:
        await _stream(send, pieces, None)
        return
    gone = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await _stream(send, pieces, gone)
    finally:
        gone.cancel()
        await _close(pieces)


def _length(reply: HttpReply) -> int | None:
    if isinstance(reply.body, FileBody):
        return reply.body.size_bytes
    if isinstance(reply.body, bytes) and (reply.body or reply.content_length is None):
        return len(reply.body)
    return reply.content_length


async def _stream(send: Send, pieces: AsyncIterator[bytes], gone: "asyncio.Future[None] | None") -> None:
    async for piece in pieces:
        if gone is not None and gone.done():
            return
        if piece:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _close(pieces: AsyncIterator[bytes]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()


async def _file_pieces(body: FileBody) -> AsyncIterator[bytes]:
    descriptor = os.open(body.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        offset, left = body.offset, body.size_bytes
        while left:
            size = min(left, _PIECE_BYTES)
            if body.size_bytes <= _INLINE_BYTES:
                piece = os.pread(descriptor, size, offset)
            else:
                piece = await asyncio.to_thread(os.pread, descriptor, size, offset)
            if not piece:
                raise OSError(f"{body.path} ended {left} bytes before the end of the slice that was to be sent")
            yield piece
            offset += len(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
