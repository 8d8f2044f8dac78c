"""Limits of a gRPC server, and the state that all of its connections share."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving.grpc_api.call import Call

__all__ = ["IDLE_S", "STREAMS", "OpenConnection", "Traffic"]

STREAMS = 1000
"""Calls of one connection at the same time; more are refused, and clients send them again."""
IDLE_S = 1800.0
"""A connection without a call is closed after that time; clients then connect again when they need it."""


class OpenConnection(Protocol):
    """A connection, as its listener sees it."""

    @property
    def busy(self) -> bool:
        """Whether there is a call without its whole answer."""
        ...

    def announce_end(self) -> None:
        """Tell the client that the server is about to stop."""
        ...

    def stop(self) -> None:
        """Begin no more calls, and close the connection after the last answer."""
        ...

    def abort(self) -> None:
        """Close the connection at once."""
        ...

    def tick(self, now_s: float) -> None:
        """Enforce the time limits."""
        ...


@dataclass(slots=True, eq=False)
class Traffic:
    """What connections share.

    Attributes:
        loop: The running event loop.
        limits: Those of HTTP/1.1 that HTTP/2 has as well: sizes of heads and bodies, slow peers, connections.
        on_call: Called with each complete call.
        connections: All that are open.
        buffered_bytes: Messages of all connections, received and to be sent.
        ended: Set while there is no connection.
    """

    loop: asyncio.AbstractEventLoop
    limits: Limits
    on_call: Callable[[Call], None]
    connections: set[OpenConnection] = field(default_factory=set)
    buffered_bytes: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, call: Call, size_bytes: int) -> None:
        """Count bytes that a call keeps in memory."""
        call.held_bytes += size_bytes
        self.buffered_bytes += size_bytes

    def release(self, call: Call) -> None:
        """Stop counting the bytes of a call."""
        self.buffered_bytes -= call.held_bytes
        call.held_bytes = 0
