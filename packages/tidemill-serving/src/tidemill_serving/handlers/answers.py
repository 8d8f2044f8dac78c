"""Check what handlers return before it is sent."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answered:
    """An HTTP answer of a worker."""

    status: int
    body: bytes
    content_type: str


def checked_body(body: Any, *, source: str) -> bytes:
    """Return a handler's body as bytes; text is encoded as UTF-8.

    Args:
        source: Name of the handler, for the error message.

    Raises:
        TypeError: The body is neither text nor bytes.
    """
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        f"the body that {source} returned is {type(body).__name__}: {body!r:.200}; return text or bytes, e.g."
        " json.dumps(...)"
    )


def error_answer(error: BaseException, *, status: int = 500) -> Answered:
    """Return the JSON answer of a request whose handler raised: ``{"error": "<text of the error>"}``.

    Args:
        error: Its text, or its repr without one.
        status: HTTP status of the answer.

    Returns:
        The answer, as application/json.
    """
    text = str(error) or repr(error)
    body = json.dumps({"error": text.encode("utf-8", "replace").decode()})
    return Answered(status, body.encode(), "application/json")
