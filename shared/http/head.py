"""Collect the head of a request from the parser, enforce its limits, and refuse ambiguous heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from .limits import Limits, Refusal

__all__ = ["HeadReader"]

_OFFER_HEADERS = (b"upgrade", b"connection")


class HeadReader:
    """Receives the parser's callbacks for the heads of one connection, one head at a time.

    Args:
        limits: See `Limits`.
        stop: Stops the parser and refuses the request.
    """

    def __init__(self, limits: Limits, stop: Callable[[Refusal], NoReturn]) -> None:
        self._limits = limits
        self._stop = stop
        self.begin()

    def begin(self) -> None:
        """Reset for a new head."""
        self.size_bytes = 0
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        """Append a part of the request target."""
        self.target += url
        if len(self.target) > self._limits.line_bytes:
            self._stop(Refusal(414, f"Request target too long: more than {self._limits.line_bytes} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Append a header."""
        self.headers.append((name.lower(), value))
        self.size_bytes += len(name) + len(value)

    def stop_large(self) -> NoReturn:
        """Refuse the head because it is too large."""
        self._stop(_too_large(f"headers of more than {self._limits.head_bytes} bytes"))

    def fields(self, version: str) -> dict[bytes, bytes]:
        """Return the headers by name, with values of one name joined by commas; refuse ambiguous heads.

        A head is ambiguous if another HTTP parser might find another host or body length in it.
        """
        limits = self._limits
        if self.size_bytes > limits.line_bytes or len(self.headers) > limits.headers:  # skips most heads
            self._check_sizes()
        found = dict(self.headers)
        if len(found) < len(self.headers):
            found = {}
            for name, value in self.headers:
                found[name] = found[name] + b", " + value if name in found else value
        refusal = _ambiguity(found, version)
        if refusal is not None:
            self._stop(refusal)
        return found

    def without_offer(self, method: bytes, version: str, *, keep_alive: bool) -> bytes:
        """Return the head's bytes without its offer to upgrade the protocol."""
        lines = [b"%s %s HTTP/%s" % (method, self.target, version.encode())]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in _OFFER_HEADERS]
        lines += [] if keep_alive else [b"connection: close"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _check_sizes(self) -> None:
        limits = self._limits
        if self.size_bytes > limits.head_bytes:
            self.stop_large()
        if len(self.headers) > limits.headers:
            self._stop(_too_large(f"more than {limits.headers} headers"))
        if max(len(name) + len(value) for name, value in self.headers) > limits.line_bytes:
            self._stop(_too_large(f"a header of more than {limits.line_bytes} bytes"))


def _ambiguity(fields: dict[bytes, bytes], version: str) -> Refusal | None:
    host, coding, expect = fields.get(b"host"), fields.get(b"transfer-encoding"), fields.get(b"expect")
    if host is None and version != "1.0":
        return Refusal(400, "No Host header")
    if host is not None and b"," in host:
        return Refusal(400, "Two Host headers: send one")
    if coding is not None and b"content-length" in fields:
        return Refusal(400, "Content-Length and Transfer-Encoding together: send one of them")
    if coding is not None and coding.lower() != b"chunked":
        return Refusal(400, f"Unsupported Transfer-Encoding: {coding.decode('latin-1')}; send chunked")
    if expect is not None and expect.lower() != b"100-continue":
        return Refusal(417, f"Unsupported Expect: {expect.decode('latin-1')}")
    return None


def _too_large(what: str) -> Refusal:
    return Refusal(431, f"Request header fields too large: {what}")
