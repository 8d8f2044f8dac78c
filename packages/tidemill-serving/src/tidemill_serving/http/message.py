"""A request as the protocol hands it on, and an answer as it takes it back."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import orjson

from tidemill_serving.errors import RequestError

__all__ = ["JSON_TYPE", "Application", "Reply", "Request", "Response", "error_response"]

JSON_TYPE = b"application/json"
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_STATUS_LINES = {status: b"HTTP/1.1 %d %s\r\n" % (status, reason) for status, reason in _REASONS.items()}


@dataclass(frozen=True, slots=True)
class Request:
    """One complete request.

    Attributes:
        method: e.g. ``POST``.
        target: Path and query as sent.
        headers: Names in lower case; of a header sent several times the values are joined by commas.
        body: Decompressed.
    """

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """An answer. ``close`` ends the connection behind it."""

    status: int
    body: bytes
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False

    def encode(self, *, keep_alive: bool, date: bytes, head_only: bool) -> bytes:
        """The bytes on the wire."""
        line = _STATUS_LINES.get(self.status) or b"HTTP/1.1 %d Unknown\r\n" % self.status
        parts = [
            line,
            b"Content-Type: ",
            self.content_type,
            b"\r\nContent-Length: %d\r\nDate: " % len(self.body),
            date,
            b"\r\n",
        ]
        for name, value in self.headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if keep_alive else b"Connection: close\r\n\r\n")
        if not head_only:
            parts.append(self.body)
        return b"".join(parts)


Reply = Callable[[Response], None]
"""Answers a request; called once, on the event loop. A connection that is gone ignores it."""

Application = Callable[[Request, Reply], None]
"""Answers requests, at once or later. It does not raise."""


def error_response(error: RequestError, *, close: bool = False) -> Response:
    """The answer in TF Serving's form of errors."""
    body = b'{ "error": ' + orjson.dumps(_valid_text(error.message)) + b" }"
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers)
    return Response(error.http_status, body, headers=headers, close=close)


def _valid_text(text: str) -> str:
    """Text without lone surrogates, which a JSON body may bring and UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
