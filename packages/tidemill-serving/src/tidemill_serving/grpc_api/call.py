"""One gRPC call: a client's request on one stream of a connection, and its answer."""

import re
import sys
import traceback
import zlib
from dataclasses import dataclass
from typing import Protocol

from tidemill_serving.errors import Code, RequestError, invalid

TOO_LATE = "the model did not answer within the deadline of the call"

PREFIX_BYTES = 5
"""Size of a message's prefix: a compression flag of 1 byte and the length in 4 bytes."""
_TIMEOUT = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_ENCODINGS = (b"gzip", b"deflate")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_WINDOW_BITS = {b"gzip": 16 + zlib.MAX_WBITS, b"deflate": zlib.MAX_WBITS}
_LEAST_COMPRESSED_BYTES = 1024
_FASTEST = 1
_MAX_DETAIL_BYTES = 2048  # escaping may triple the size, and clients refuse trailers above 8 KiB


@dataclass(frozen=True, slots=True)
class Head:
    """Parsed headers of a call.

    Attributes:
        path: ``/service/method``.
        timeout_s: The client's time limit for the call, in seconds; None without a limit.
        encoding: Name of the message's compression.
        is_grpc: Whether the request is a gRPC request.
        timeout_fault: Text of an invalid ``grpc-timeout``; empty if the header is valid or missing.
        accepted: Text of ``grpc-accept-encoding``: the compressions that the client can read.
    """

    path: bytes
    timeout_s: float | None
    encoding: bytes
    is_grpc: bool
    timeout_fault: bytes
    accepted: bytes


def head_of(fields: dict[bytes, bytes]) -> Head:
    """Parse the headers of a call.

    Args:
        fields: Header values by name, in bytes.

    Returns:
        The timeout in seconds; ``identity`` for a missing encoding.
    """
    timeout = fields.get(b"grpc-timeout", b"")
    found = _TIMEOUT.fullmatch(timeout)
    return Head(
        path=fields.get(b":path", b""),
        timeout_s=int(found[1]) * _UNITS_S[found[2]] if found else None,
        encoding=fields.get(b"grpc-encoding", b"identity"),
        is_grpc=fields.get(b":method") == b"POST"
        and re.fullmatch(rb"application/grpc([+;].*)?", fields.get(b"content-type", b"")) is not None,
        timeout_fault=b"" if found else timeout,
        accepted=fields.get(b"grpc-accept-encoding", b""),
    )


class Replies(Protocol):
    """The connection of calls: sends their answers."""

    @property
    def is_local(self) -> bool:
        """Whether the client is on this machine."""

    def send_answer(self, call: "Call", message: bytes) -> None:
        """Answer a call with a message. No effect if the call is over.

        Args:
            message: The serialized message, without the prefix of five bytes.
        """

    def send_failure(self, call: "Call", status: int, message: bytes) -> None:
        """Answer a call with an error status. No effect if the call is over.

        Args:
            status: gRPC's number of the error.
            message: UTF-8 text.
        """

    def send_part(self, call: "Call", message: bytes) -> None:
        """Send one message of a streamed answer. No effect if the call is over.

        Args:
            message: The serialized message, without the prefix of five bytes.
        """

    def end_answer(self, call: "Call") -> None:
        """End a streamed answer with the status OK. No effect if the call is over."""

    def consumed(self, call: "Call", size_bytes: int) -> None:
        """Let the client send more, because a message of its stream was read.

        Args:
            size_bytes: Bytes of the message and its prefix.
        """


class StreamedMethod(Protocol):
    """Method whose request or answer is a stream of messages."""

    def advance(self, call: "Call") -> None:
        """Do what can be done now: read messages and send messages.

        Called when something of the request has arrived, and when a message that had to wait was sent.
        """

    def dropped(self, call: "Call") -> None:
        """Forget a call, which is over."""


class Call:
    """Call of a connection.

    Args:
        head: Parsed headers.
        begin_s: Time at which the headers arrived, by the loop's clock.
        send_window: Bytes that may be sent before the client enlarges the window.
        receive_window: Bytes that the client may send.

    Attributes:
        parts: Received parts of the message; emptied when the call no longer needs them.
        size_bytes: Number of received bytes; of a stream, of those that were not yet read.
        is_complete: Whether the client has sent the whole request.
        is_over: Whether the call is answered, or the client no longer waits for the answer.
        has_begun: Whether the headers of the answer were sent.
        compression: Compression of the answer; empty without.
        streamed: The method, if it streams.
        pending: Bytes of the answer that wait for the client's window.
        held_bytes: Bytes of this call that count as buffered.
        measured_s: Time at which `measured_bytes` were received.
    """

    __slots__ = (
        *("_unread", "begin_s", "compression", "connection", "has_begun", "head", "held_bytes", "is_complete"),
        *("is_over", "measured_bytes", "measured_s", "parts", "pending", "receive_window", "send_window"),
        *("size_bytes", "stream", "streamed"),
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
        self.is_complete = self.is_over = self.has_begun = False
        self.compression = b""
        self.streamed: StreamedMethod | None = None
        self.pending = memoryview(b"")
        self._unread: bytearray | None = None

    def message(self, *, limit_bytes: int) -> bytes:
        """Return the message.

        Raises:
            RequestError: The request has no message or several, or the message is too large, of an unknown compression,
                or damaged.
        """
        parts = self.parts  # the event loop may replace the list meanwhile
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

    def next_message(self, *, limit_bytes: int) -> bytes | None:
        """Return the next message of a stream; None until all of its bytes have arrived.

        Raises:
            RequestError: The message is too large, incomplete, of an unknown compression, or damaged.
        """
        if self._unread is None:
            self._unread = bytearray()
        unread = self._unread
        unread += b"".join(self.parts)
        self.parts = []
        size = int.from_bytes(unread[1:PREFIX_BYTES], "big")
        if size > limit_bytes:
            raise too_large(size, limit_bytes=limit_bytes)
        if len(unread) < PREFIX_BYTES + size:
            if self.is_complete and unread:
                raise invalid(f"the stream ends after {len(unread)} bytes of a message of {PREFIX_BYTES + size}")
            return None
        data = bytes(unread[: PREFIX_BYTES + size])
        del unread[: PREFIX_BYTES + size]
        self.connection.consumed(self, PREFIX_BYTES + size)
        return data[PREFIX_BYTES:] if not data[0] else self._decompressed(data, limit_bytes=limit_bytes)

    @property
    def is_compressed(self) -> bool:
        """Return whether the message is compressed."""
        return bool(self.parts and self.parts[0][:1] != b"\0")

    def answer(self, message: bytes) -> None:
        """Answer with a message. No effect if the call is over. Must be called on the event loop.

        Args:
            message: The serialized message.
        """
        self.connection.send_answer(self, message)

    def compressed(self, message: bytes, *, default: bytes) -> bytes:
        """Return the message as the answer has it: compressed as the client compresses, if the client accepts that.

        Args:
            message: The serialized message.
            default: Compression for clients that do not compress; empty without.
        """
        encoding = self.head.encoding if self.head.encoding in _ENCODINGS else default
        if not encoding or len(message) < _LEAST_COMPRESSED_BYTES:
            return message
        if encoding not in [each.strip() for each in self.head.accepted.split(b",")]:
            return message
        compressor = zlib.compressobj(_FASTEST, wbits=_WINDOW_BITS[encoding])
        small = compressor.compress(message) + compressor.flush()
        if len(small) >= len(message):
            return message
        self.compression = encoding
        return small

    def send(self, message: bytes) -> None:
        """Send one message of a streamed answer. No effect if the call is over. Must be called on the event loop.

        Args:
            message: The serialized message. Nothing may be pending.
        """
        self.connection.send_part(self, message)

    def end(self) -> None:
        """End a streamed answer. No effect if the call is over. Must be called on the event loop."""
        self.connection.end_answer(self)

    def fail(self, code: Code, text: str) -> None:
        """Answer with an error. No effect if the call is over. Must be called on the event loop.

        Args:
            text: Shown to the client; cut at a limit of bytes.
        """
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
    """Return the error for a message above the limit.

    Args:
        size: Bytes of the message.
        limit_bytes: The limit that it exceeds.

    Returns:
        RESOURCE_EXHAUSTED.
    """
    return RequestError(Code.RESOURCE_EXHAUSTED, f"Received message larger than max ({size} vs. {limit_bytes})")


def status_of(error: Exception) -> RequestError:
    """Return the status of a failed call. An unexpected error is printed to the endpoint's log.

    Args:
        error: Why the call failed.
    """
    if isinstance(error, RequestError):
        return error
    if isinstance(error, TimeoutError):
        return RequestError(Code.DEADLINE_EXCEEDED, TOO_LATE)
    if isinstance(error, MemoryError):
        return RequestError(Code.RESOURCE_EXHAUSTED, f"Memory exhausted: {error}")
    traceback.print_exception(error, file=sys.stderr)
    return RequestError(Code.INTERNAL, f"{type(error).__name__}: {error}")
