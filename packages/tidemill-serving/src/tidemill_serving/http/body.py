"""Bodies: gather them within the limits, decompress gzip without letting it grow past them."""

import zlib

from tidemill_serving.errors import Code, RequestError

__all__ = ["decode_body", "too_large"]

_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_GZIP_NAMES = (b"gzip", b"x-gzip")


def too_large(limit_bytes: int) -> RequestError:
    """The error of a body above the limit."""
    return RequestError(
        Code.RESOURCE_EXHAUSTED, f"The request body is larger than the {limit_bytes} bytes allowed", http_status=413
    )


def decode_body(body: bytes, encoding: bytes, *, limit_bytes: int) -> bytes:
    """Undo a Content-Encoding.

    Args:
        body: As received.
        encoding: The header's value; empty for none.
        limit_bytes: Most bytes that may come out.

    Raises:
        RequestError: 415 for an unknown encoding, 413 above the limit, 400 for damaged data.
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
    while body:
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        try:
            part = decompressor.decompress(body, room + 1)
        except zlib.error as error:
            raise RequestError(Code.INVALID_ARGUMENT, f"The gzip body is damaged: {error}") from error
        room -= len(part)
        if room < 0:
            raise too_large(limit_bytes)
        if not decompressor.eof:
            raise RequestError(Code.INVALID_ARGUMENT, "The gzip body ends before its last member does")
        parts.append(part)
        body = decompressor.unused_data
    return b"".join(parts)
