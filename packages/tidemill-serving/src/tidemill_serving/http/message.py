"""The request that the HTTP layer passes to an application, and the response that it gets back."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import orjson

from tidemill_serving._shared.http.limits import Headers, Refusal
from tidemill_serving.errors import RequestError

JSON_TYPE = b"application/json"


class HttpRequest(NamedTuple):
    """One complete request.

    Attributes:
        method: e.g. ``POST``.
        target: Path and query as sent.
        headers: Values by lower-case name; values of a repeated header are joined by commas.
        body: The decompressed body.
        is_over: Returns whether nobody waits for the answer any more: the client has left, or was told that it takes
            too long.
    """

    method: bytes
    target: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    is_over: Callable[[], bool]


class Response(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()


Reply = Callable[[Response], None]
"""Sends the answer of a request; called once, on the event loop. Ignored if the connection is closed."""

Application = Callable[[HttpRequest, Reply], None]
"""Answers requests, immediately or later. It does not raise."""


def error_response(error: RequestError) -> Response:
    """Return an error response in TF Serving's format.

    Args:
        error: Its text becomes ``{"error": ...}``.

    Returns:
        The response, with the error's status and headers.
    """
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers)
    return Response(error.http_status, _error_body(error.message), headers=headers)


def refusal_form(refusal: Refusal) -> tuple[Headers, bytes]:
    """Return headers and body of a refusal by the HTTP layer, in the same format."""
    return ((b"Content-Type", JSON_TYPE),), _error_body(refusal.message)


def _error_body(message: str) -> bytes:
    # Text of a JSON body may contain lone surrogates, which UTF-8 cannot encode.
    return b'{ "error": ' + orjson.dumps(message.encode("utf-8", "replace").decode()) + b" }"
