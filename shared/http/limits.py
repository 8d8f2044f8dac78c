"""Limits of an HTTP server (sizes, times, connections), the counters checked against them, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate

__all__ = ["Headers", "KnownHead", "Limits", "Refusal", "RefusalForm", "Traffic"]

Headers = Iterable[tuple[bytes, bytes]]
_KNOWN_HEADS = 1024
_ANSWER_HEAD_BYTES = 512  # longer ones are not remembered


@dataclass(frozen=True)
class Limits:
    """Limits of an HTTP server; what goes beyond is answered with the status in brackets.

    Attributes:
        head_bytes: Request line and headers together [431].
        line_bytes: One header, name and value [431], or the request target [414].
        headers: Number of headers [431].
        body_bytes: A body [413]. A server that streams bodies leaves this and ``buffered_bytes`` to its application.
        buffered_bytes: Bodies of all connections together [503].
        unread_bytes: A connection is not read while its application has yet to take more than that of a streamed body.
        head_timeout_s: From the first byte of a request to the end of its headers [408]; a new connection that sends
            nothing for as long is closed.
        slow_window_s: Time over which the speed of a body is measured.
        slow_bytes_per_s: Least speed of a body [408]. Time in which the server does not read is not counted.
        keep_alive_s: A connection without a request is closed after that time.
        answer_timeout_s: From the end of a request to its answer [504].
        linger_s: How long the rest of a refused request is read and dropped, so that its sender reads the refusal.
        linger_bytes: Most bytes that are dropped so.
        connections: Connections of one listener; more are answered [503].
        pipelined: Requests of one connection that are read ahead of the one being answered.
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
    pipelined: int = 16


@dataclass(frozen=True)
class Refusal:
    """An answer that the server gives without the application."""

    status: int
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class KnownHead:
    """What the parser found in the head of a request that was in order and left the connection open.

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
"""Returns headers and body of a refusal: each server has a form of its own."""


class Traffic:
    """State that all connections of a listener share.

    Args:
        limits: See `Limits`.
        streams: Whether the application gets a request when its head is read, and takes the body while it comes.
            Otherwise it gets complete requests.
        refusal_form: How refusals look to clients.
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
        """Keep what a head says, so that the same text need not be parsed again."""
        if len(self.known_heads) >= _KNOWN_HEADS:
            self.known_heads.clear()
        self.known_heads[text] = head

    def remember_answer_head(self, status: int, headers: Sequence[tuple[bytes, bytes]], text: bytes) -> bytes:
        """Keep the first lines of an answer, and return them."""
        if len(text) <= _ANSWER_HEAD_BYTES:
            if len(self.answer_heads) >= _KNOWN_HEADS:
                self.answer_heads.clear()
            self.answer_heads[status, headers] = text
        return text

    def renew_date(self) -> None:
        """Set the date that answers have to the current time."""
        self.date = formatdate(usegmt=True).encode()
