"""Decompress request bodies without exceeding the size limit."""

import zlib

from tidemill_serving.errors import Code, RequestError

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_NAMES = (b"gzip", b"x-gzip")
_MAX_MEMBERS = 10_000  # an empty member takes 20 bytes and has no output, so the limit on bytes does not count it
_INPUT_BYTES = 65_536


def too_large(limit_bytes: int) -> RequestError:
    """Return the error for a body above the limit.

    Args:
        limit_bytes: The limit that the body exceeds.

    Returns:
        RESOURCE_EXHAUSTED with HTTP status 413.
    """
    return RequestError(
        Code.RESOURCE_EXHAUSTED, f"The request body is larger than the {limit_bytes} bytes allowed", http_status=413
    )


def decode_body(body: bytes, encoding: bytes, *, limit_bytes: int) -> bytes:
    """Decode a body with a Content-Encoding.

    Args:
        body: The body as received.
        encoding: Value of the header; empty if it was not sent.
        limit_bytes: Maximum size of the result.

    Raises:
        RequestError: 415 if the encoding is unknown, 413 if the result exceeds the limit, 400 if the data is damaged.
    """
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return body
    if name not in _GZIP_NAMES:
        raise RequestError(
            Code.INVALID_ARGUMENT,
            f"Unsupported Content-Encoding: {encoding.decode('latin-1')}; send gzip or identity",
            http_status=415,
            headers=(("Accept-Encoding", "gzip, identity"),),
        )
    return _gunzip(body, limit_bytes=limit_bytes)


def _gunzip(body: bytes, *, limit_bytes: int) -> bytes:
    """Decompress all members of a gzip body."""
    parts: list[bytes] = []
    room = limit_bytes
    members = 0
    view = memoryview(body)  # avoids a copy of the remaining body per member
    while view:
        members += 1
        if members > _MAX_MEMBERS:
            raise RequestError(Code.INVALID_ARGUMENT, f"The gzip body has more than {_MAX_MEMBERS} members")
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        while view and not decompressor.eof:
            part = _decompress(decompressor, bytes(view[:_INPUT_BYTES]), room + 1)
            view = view[min(_INPUT_BYTES, len(view)) - len(decompressor.unused_data) :]
            room -= len(part)
            if room < 0:
                raise too_large(limit_bytes)
            parts.append(part)
        if not decompressor.eof:
            raise RequestError(Code.INVALID_ARGUMENT, "The gzip body ends before its last member does")
    return b"".join(parts)


def _decompress(decompressor: "zlib._Decompress", data: bytes, limit_bytes: int) -> bytes:
    try:
        return decompressor.decompress(data, limit_bytes)
    except zlib.error as error:
        raise RequestError(Code.INVALID_ARGUMENT, f"The gzip body is damaged: {error}") from error
