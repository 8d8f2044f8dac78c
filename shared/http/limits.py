"""Limits of an HTTP server (sizes, times, connections), the counters checked against them, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate

Headers = Iterable[tuple[bytes, bytes]]
_KNOWN_HEADS = 1024
_ANSWER_HEAD_BYTES = 512  # longer heads are not cached


@dataclass(frozen=True)
class Limits:
    """Limits of an HTTP server. A request beyond a limit is answered with the status in brackets.

    Attributes:
        head_bytes: Request line and headers together [431].
        line_bytes: One header, name and value [431], or the request target [414].
        headers: Number of headers [431].
        body_bytes: A body [413]. A server that streams bodies leaves this and ``buffered_bytes`` to its application.
        buffered_bytes: Bodies of all connections together [503].
        unread_bytes: Bytes of a streamed body that the application has not taken yet. Above it, reading pauses.
        head_timeout_s: Time from the first byte of a request to the end of its headers [408]. A new connection that
            sends nothing for this time is closed.
        slow_window_s: Time over which the speed of a body is measured.
        slow_bytes_per_s: Minimum speed of a body [408]. Time in which the server does not read does not count.
        keep_alive_s: Time after which a connection without a request is closed.
        answer_timeout_s: Time from the end of a request to its answer [504].
        linger_s: Time during which the rest of a refused request is read and dropped, so that its sender can read the
            refusal.
        linger_bytes: Maximum number of bytes dropped after a refusal.
        connections: Number of connections of one listener [503].
        unproven: Number of connections of one client without a signed request so far; beyond it, the oldest that waits
            for its client is closed. All clients together may have three quarters of ``connections``. None: no limit.
        pipelined: Number of requests of one connection that are read ahead of the one being answered.
    """

    head_bytes: int = 64 * 1024
    line_bytes: int = 16 * 1024
    headers: int = 128
    body_bytes: int = 100 * 1000 * 1000
    buffered_bytes: int = 2 * 1024**3
    unread_bytes: int = 64 * 1024
    head_timeout_s: float = 10.0
    slow_window_s: float = 30.0
    slow_bytes_per_s: int = 1024
    keep_alive_s: float = 75.0
    answer_timeout_s: float = 60.0
    linger_s: float = 2.0
    linger_bytes: int = 16 * 1024 * 1024
    connections: int = 4096
    unproven: int | None = None
    pipelined: int = 16


@dataclass(frozen=True)
class Refusal:
    """Answer that the server sends without calling the application."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class KnownHead:
    """Parsed head of a valid request that kept the connection open.

    Attributes:
        method, target, headers, fields: See `Exchange`.
        body_bytes: Size of the body that follows.
    """

    method: bytes
    target: bytes
    headers: Sequence[tuple[bytes, bytes]]
    fields: Mapping[bytes, bytes]
    body_bytes: int


RefusalForm = Callable[[Refusal], tuple[Headers, bytes]]
"""Returns the headers and the body of a refusal. Each server has its own format."""


class Traffic:
    """State that all connections of a listener share.

    Args:
        limits: See `Limits`.
        streams: Whether the application gets a request after its head, and takes the body while it arrives. If False,
            the application gets complete requests.
        refusal_form: Formats refusals for clients.
        now_s: The event loop's clock, in seconds.
    """

    def __init__(self, limits: Limits, *, streams: bool, refusal_form: RefusalForm, now_s: Callable[[], float]) -> None:
        self.limits = limits
        self.streams = streams
        self.refusal_form = refusal_form
        self.now_s = now_s
        self.draining = False
        self.buffered_bytes = 0
        self.known_heads: dict[bytes, KnownHead] = {}
        self.answer_heads: dict[tuple[int, Sequence[tuple[bytes, bytes]]], bytes] = {}
        self.renew_date()

    def remember_head(self, text: bytes, head: KnownHead) -> None:
        """Cache a parsed head, so that the same text is not parsed again."""
        if len(self.known_heads) >= _KNOWN_HEADS:
            self.known_heads.clear()
        self.known_heads[text] = head

    def remember_answer_head(self, status: int, headers: Sequence[tuple[bytes, bytes]], text: bytes) -> bytes:
        """Cache the head of an answer, and return it."""
        if len(text) <= _ANSWER_HEAD_BYTES:
            if len(self.answer_heads) >= _KNOWN_HEADS:
                self.answer_heads.clear()
            self.answer_heads[status, headers] = text
        return text

    def renew_date(self) -> None:
        """Set the Date header of answers to the current time."""
        self.date = formatdate(usegmt=True).encode()
