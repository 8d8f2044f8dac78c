"""An answer that is ready for HTTP, and how files and streams are sent in pieces."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidemill._shared.http.exchange import Exchange
from tidemill.wire.exchange import FileBody

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


def json_reply(members: Mapping[str, Any]) -> HttpReply:
    """Return a document that is true only now, and is kept in no cache.

    Args:
        members: Its members.
    """
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    return HttpReply(200, headers, json.dumps(members).encode())


async def send_reply(exchange: Exchange, reply: HttpReply) -> None:
    """Send status, headers and body; stop when the client disconnects."""
    is_head = exchange.method == b"HEAD"
    if is_head or reply.content_length is not None or not isinstance(reply.body, bytes):
        _announce(reply)
    exchange.start(reply.status, reply.headers)
    body = b"" if is_head else reply.body
    if isinstance(body, bytes):
        exchange.send(body)
        return
    if isinstance(body, FileBody) and body.size_bytes > _INLINE_BYTES and not _is_encrypted(exchange):
        with body.path.open("rb", buffering=0) as file:
            await exchange.send_file(file, body.offset, body.size_bytes)
        return
    pieces = _file_pieces(body) if isinstance(body, FileBody) else body
    try:
        async for piece in pieces:
            while not exchange.writable and not exchange.gone:
                await exchange.changed()
            if exchange.gone:
                return
            if piece:
                exchange.send(piece, more=True)
        exchange.send(b"")
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


def _is_encrypted(exchange: Exchange) -> bool:
    return exchange.transport.get_extra_info("sslcontext") is not None


def _announce(reply: HttpReply) -> None:
    """Add the size of the body to the headers, if it is known."""
    length = reply.content_length
    if isinstance(reply.body, FileBody):
        length = reply.body.size_bytes
    elif isinstance(reply.body, bytes) and (reply.body or length is None):
        length = len(reply.body)
    if length is not None and reply.status not in (204, 304):
        reply.headers.append((b"content-length", str(length).encode("ascii")))


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
