"""Limits of a gRPC server, and the state that all its connections share."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidemill_serving._shared.http.limits import Limits
from tidemill_serving.channel_arguments import ChannelArguments
from tidemill_serving.grpc_api.call import Call, StreamedMethod


class OpenConnection(Protocol):
    """Methods of a connection that its listener uses."""

    @property
    def busy(self) -> bool:
        """Whether a call is not yet answered completely."""

    def announce_end(self) -> None:
        """Announce to the client that the server will stop."""

    def stop(self) -> None:
        """Accept no more calls, and close the connection after the last answer."""

    def abort(self) -> None:
        """Close the connection immediately."""

    def tick(self, now_s: float) -> None:
        """Enforce the time limits.

        Args:
            now_s: Time of the event loop, in seconds.
        """


@dataclass(slots=True, eq=False)
class GrpcTraffic:
    """State that all connections share.

    Attributes:
        loop: The running event loop.
        limits: Limits of the HTTP/1.1 server that also apply here: sizes of heads and bodies, slow peers, connections.
        on_call: Called with each complete call, except those of streamed methods.
        streamed: Methods that read or send streams, by path.
        arguments: Limits that only gRPC has.
        buffered_bytes: Bytes of all messages in memory, received or still to be sent.
        ended: Set while there is no connection.
    """

    loop: asyncio.AbstractEventLoop
    limits: Limits
    on_call: Callable[[Call], None]
    streamed: Mapping[bytes, StreamedMethod] = field(default_factory=dict)
    arguments: ChannelArguments = field(default_factory=ChannelArguments)
    connections: set[OpenConnection] = field(default_factory=set)
    buffered_bytes: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self, call: Call, size_bytes: int) -> None:
        """Count bytes that a call keeps in memory.

        Args:
            size_bytes: Bytes of its request or answer.
        """
        call.held_bytes += size_bytes
        self.buffered_bytes += size_bytes

    def release(self, call: Call) -> None:
        """Stop counting the bytes of a call.

        Args:
            call: The call; a second release has no effect.
        """
        self.buffered_bytes -= call.held_bytes
        call.held_bytes = 0
