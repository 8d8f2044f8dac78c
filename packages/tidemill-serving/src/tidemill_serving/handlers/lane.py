"""The server's end of one socket to a worker: sends a request and receives its answer, one at a time."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from tidemill_serving.handlers.wire import LENGTHS

Frame = tuple[dict[str, Any], bytes]


class Lane(asyncio.Protocol):
    """Splits the bytes from a worker into frames.

    Args:
        received: Called with each frame.
        lost: Called once, when the worker has closed its end.
    """

    def __init__(self, received: "Callable[[Lane, Frame], None]", lost: "Callable[[Lane], None]") -> None:
        self._received = received
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._wanted = LENGTHS.size

    def send(self, parts: tuple[bytes, bytes]) -> None:
        """Send the parts of a frame.

        Args:
            parts: Header and body of a frame, as `frame` returns them. Dropped if the worker has ended.
        """
        if self._transport is not None:
            self._transport.writelines(parts)

    def close(self) -> None:
        """Close this end; the worker sees an end of file."""
        if self._transport is not None:
            self._transport.close()

    # Callbacks of asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Read frames from the worker; a frame may arrive in several reads.

        Args:
            data: One read of the socket.
        """
        self._data += data
        while len(self._data) >= self._wanted:
            head_bytes, body_bytes = LENGTHS.unpack_from(self._data)
            size_bytes = LENGTHS.size + head_bytes + body_bytes
            if len(self._data) < size_bytes:
                self._wanted = size_bytes  # the header is not parsed again for each piece of a long body
                return
            body_at = LENGTHS.size + head_bytes
            frame = json.loads(self._data[LENGTHS.size : body_at]), bytes(memoryview(self._data)[body_at:size_bytes])
            del self._data[:size_bytes]
            self._wanted = LENGTHS.size
            self._received(self, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report that the worker closed its socket.

        Args:
            exc: Unused; why asyncio closed it.
        """
        self._transport = None
        self._lost(self)
