"""An answer that is ready for HTTP: status, headers, and a body that may be a file or a stream."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from tidemill.errors import AwsError
from tidemill.wire.exchange import FileBody

__all__ = ["HttpReply", "ReplyBody", "header_pairs"]

ReplyBody = bytes | FileBody | AsyncIterator[bytes]


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
