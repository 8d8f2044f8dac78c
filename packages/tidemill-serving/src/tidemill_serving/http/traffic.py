"""State that all connections share: the application, limits, the clock, and what is buffered and open."""

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Protocol

from tidemill_serving.errors import Code, RequestError
from tidemill_serving.http.limits import Limits
from tidemill_serving.http.message import Application

__all__ = ["Connection", "Traffic", "http_date"]


class Connection(Protocol):
    """One open connection, as the listener sees it."""

    @property
    def busy(self) -> bool:
        """Whether a request is being read or answered."""
        ...

    def tick(self, now_s: float) -> None:
        """Enforce the time limits; called once a second."""
        ...

    def finish(self) -> None:
        """Answer the requests that were read, then close."""
        ...

    def close(self) -> None:
        """Close after everything written was sent."""
        ...

    def abort(self) -> None:
        """Close immediately."""
        ...


class Traffic:
    """Limits and counters of one listener.

    Args:
        application: Answers requests.
        limits: See `Limits`.
        now_s: The event loop's clock, in seconds.
    """

    def __init__(self, application: Application, *, limits: Limits, now_s: Callable[[], float]) -> None:
        self.application = application
        self.limits = limits
        self.now_s = now_s
        self.draining = False
        self.buffered_bytes = 0
        self.date = http_date()
        self.connections: set[Connection] = set()
        self.ended = asyncio.Event()
        """Set whenever a connection ends."""

    def admit(self, connection: Connection) -> RequestError | None:
        """Count a connection in; return the refusal if there are too many."""
        self.connections.add(connection)
        if len(self.connections) > self.limits.connections:
            return RequestError(
                Code.UNAVAILABLE,
                f"More than {self.limits.connections} connections: try again",
                headers=(("Retry-After", "1"),),
            )
        return None

    def forget(self, connection: Connection) -> None:
        """Count a connection out."""
        self.connections.discard(connection)
        self.ended.set()

    def take_bytes(self, size_bytes: int) -> None:
        """Account for body bytes now held."""
        self.buffered_bytes += size_bytes

    def release_bytes(self, size_bytes: int) -> None:
        """Account for body bytes released."""
        self.buffered_bytes -= size_bytes


def http_date() -> bytes:
    """The current time as the `Date` header has it."""
    return formatdate(usegmt=True).encode()
