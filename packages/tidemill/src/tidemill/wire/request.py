"""The head of an HTTP request, read from an ASGI scope once."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from tidemill.errors import AwsError

__all__ = ["Request", "media_type"]


class Request:
    """Method, path, query and headers as they were sent.

    Args:
        scope: The ASGI scope; ``raw_path`` is used, so that an encoded slash in an S3 key is preserved.
    """

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.method: str = scope["method"]
        self.scheme: str = scope.get("scheme", "http")
        self.raw_path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1") or "/"
        self.query_string: str = scope["query_string"].decode("latin-1")
        self.host_headers = 0
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name = raw_name.decode("latin-1")
            value = raw_value.decode("latin-1")
            if name == "host":
                self.host_headers += 1
            headers[name] = f"{headers[name]},{value}" if name in headers else value
        self.headers = headers
        """Names in lower case; values of a repeated header are joined by commas, which is also how they are signed."""

    @cached_property
    def query(self) -> list[tuple[str, str]]:
        """Decoded query parameters in order. A plus sign is not decoded to a space."""
        return [(self._text(name), self._text(value)) for name, _, value in self.query_pairs]

    @cached_property
    def query_pairs(self) -> list[tuple[str, str, str]]:
        """Query parameters as sent: name, ``=`` or nothing, value."""
        return [pair.partition("=") for pair in self.query_string.split("&") if pair]

    @cached_property
    def query_map(self) -> dict[str, str]:
        """Query parameters by name; the first one of a repeated name."""
        found: dict[str, str] = {}
        for name, value in self.query:
            found.setdefault(name, value)
        return found

    @cached_property
    def path(self) -> str:
        """The decoded path."""
        return self.decode(self.raw_path)

    def decode(self, text: str) -> str:
        """Decode the percent signs in a part of the path.

        Raises:
            AwsError: InvalidURI, the bytes are not UTF-8.
        """
        if "%" not in text and text.isascii():
            return text
        return self._text(text)

    @property
    def content_length(self) -> int | None:
        """Announced size of the body in bytes, before decoding."""
        text = self.headers.get("content-length")
        return int(text) if text is not None and text.isascii() and text.isdigit() else None

    @property
    def has_body(self) -> bool:
        """Whether a body follows the head."""
        return "transfer-encoding" in self.headers or bool(self.content_length)

    @staticmethod
    def _text(text: str) -> str:
        if "%" not in text and text.isascii():
            return text
        try:
            return unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
        except UnicodeDecodeError:
            shown = unquote(text, errors="replace")[:128]
            raise AwsError(
                f"The URI is not UTF-8 after percent decoding: {shown!r}. Encode names as UTF-8 before the percent"
                " encoding.",
                code="InvalidURI",
                status=400,
            ) from None


def media_type(content_type: str) -> str:
    """Return the media type of a Content-Type header in lower case, without parameters."""
    return content_type.partition(";")[0].strip().lower()
