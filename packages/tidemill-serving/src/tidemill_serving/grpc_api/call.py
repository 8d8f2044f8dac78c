"""One call: what a client sent on one stream of a connection, and its answer."""

import re
import zlib
from dataclasses import dataclass
from typing import Protocol

from tidemill_serving.errors import Code, RequestError, invalid

__all__ = ["PREFIX_BYTES", "Call", "Head", "Replies", "head_of", "too_large"]

PREFIX_BYTES = 5
"""Size of what precedes a message: whether it is compressed, and its length."""
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENCODINGS = (b"gzip", b"deflate")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_MAX_DETAIL_BYTES = 2048  # a byte may become three on the wire, and clients refuse trailers above 8 KiB


@dataclass(frozen=True, slots=True)
class Head:
    """What the headers of a call say.

    Attributes:
        path: ``/service/method``.
        timeout_s: The time that the client gives the call; None if it gives no limit.
        encoding: Name of the compression of its message.
        is_grpc: Whether it is a request of gRPC at all.
        timeout_fault: The deadline that cannot be read; empty if there is none.
    """

    path: bytes
    timeout_s: float | None
    encoding: bytes
    is_grpc: bool
    timeout_fault: bytes


def head_of(fields: dict[bytes, bytes]) -> Head:
    """Return what headers say."""
    timeout = fields.get(b"grpc-timeout", b"")
    found = _TIMEOUT.fullmatch(timeout)
    return Head(
        path=fields.get(b":path", b""),
        timeout_s=int(found[1]) * _UNITS_S[found[2]] if found else None,
        encoding=fields.get(b"grpc-encoding", b"identity"),
        is_grpc=fields.get(b":method") == b"POST"
        and re.fullmatch(rb"application/grpc([+;].*)?", fields.get(b"content-type", b"")) is not None,
        timeout_fault=b"" if found else timeout,
    )


class Replies(Protocol):
    """Sends the answers of a connection's calls."""

    def send_answer(self, call: "Call", message: bytes) -> None:
        """Answer a call; do nothing if the call is over."""
        ...

    def send_failure(self, call: "Call", status: int, message: bytes) -> None:
        """Answer a call with a status; do nothing if the call is over."""
        ...


class Call:
    """A call of a connection.

    Args:
        connection: The connection.
        stream: Number of the call's stream.
        head: What its headers say.
        begin_s: When the headers came, by the loop's clock.
        send_window: Bytes that may be sent before the client allows more.
        receive_window: Bytes that the client may send.

    Attributes:
        parts: What came of the message; emptied when nobody needs it any more.
        size_bytes: Size of these parts.
        is_complete: Whether the client has sent everything.
        is_over: Whether the answer was given, or the client no longer waits for it.
        pending: Bytes of the answer that have to wait.
        held_bytes: What the call counts in the bytes that all connections buffer.
        measured_s: When `measured_bytes` were there.
    """

    __slots__ = (
        *("begin_s", "connection", "head", "held_bytes", "is_complete", "is_over", "measured_bytes", "measured_s"),
        *("parts", "pending", "receive_window", "send_window", "size_bytes", "stream"),
    )

    def __init__(
        self,
        connection: Replies,
        stream: int,
        head: Head,
        *,
        begin_s: float,
        send_window: int,
        receive_window: int,
    ) -> None:
        self.connection = connection
        self.stream = stream
        self.head = head
        self.begin_s = self.measured_s = begin_s
        self.send_window = send_window
        self.receive_window = receive_window
        self.parts: list[bytes] = []
        self.size_bytes = self.measured_bytes = self.held_bytes = 0
        self.is_complete = self.is_over = False
        self.pending = memoryview(b"")

    def message(self, *, limit_bytes: int) -> bytes:
        """Return the message.

        Raises:
            RequestError: There is not exactly one, it is too large, or its compression is unknown or damaged.
        """
        parts = self.parts  # the loop may replace it meanwhile
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if len(data) < PREFIX_BYTES:
            raise RequestError(Code.UNIMPLEMENTED, "a call of this method has one message, but there came none")
        size = int.from_bytes(data[1:PREFIX_BYTES], "big")
        if size > limit_bytes:
            raise too_large(size, limit_bytes=limit_bytes)
        if len(data) < PREFIX_BYTES + size:
            raise invalid(f"the message ends after {len(data) - PREFIX_BYTES} of its {size} bytes")
        if len(data) > PREFIX_BYTES + size:
            raise RequestError(Code.UNIMPLEMENTED, "a call of this method has one message, but there came more")
        return data[PREFIX_BYTES:] if not data[0] else self._decompressed(data, limit_bytes=limit_bytes)

    @property
    def is_compressed(self) -> bool:
        """Whether the message is compressed."""
        return bool(self.parts and self.parts[0][:1] != b"\0")

    def answer(self, message: bytes) -> None:
        """Answer with a message; does nothing if the call is over. Called on the loop."""
        self.connection.send_answer(self, message)

    def fail(self, code: Code, text: str) -> None:
        """Answer with an error; does nothing if the call is over. Called on the loop."""
        shown = text.encode("utf-8", "replace")[:_MAX_DETAIL_BYTES]
        self.connection.send_failure(self, code.number, shown.decode("utf-8", "ignore").encode())

    def _decompressed(self, data: bytes, *, limit_bytes: int) -> bytes:
        encoding = self.head.encoding
        if data[0] != 1 or encoding == b"identity":
            raise invalid("the message is marked as compressed, but grpc-encoding names no compression")
        if encoding not in _ENCODINGS:
            shown = encoding.decode("utf-8", "replace")
            raise RequestError(
                Code.UNIMPLEMENTED, f"grpc-encoding {shown!r} is unknown; expected identity, deflate or gzip"
            )
        decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
        try:
            message = decompressor.decompress(data[PREFIX_BYTES:], limit_bytes + 1)
        except zlib.error as error:
            raise invalid(f"the compressed message is damaged: {error}") from error
        if len(message) > limit_bytes:
            raise too_large(len(message), limit_bytes=limit_bytes)
        if not decompressor.eof or decompressor.unused_data:
            raise invalid("the compressed message is damaged: it ends too early or too late")
        return message


def too_large(size: int, *, limit_bytes: int) -> RequestError:
    """Return the error for a message above the limit."""
    return RequestError(Code.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {limit_bytes})")
