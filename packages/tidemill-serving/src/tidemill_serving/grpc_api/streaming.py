"""Calls of methods that stream: they read a message at a time, and send a message once the one before it was written.

So each call keeps at most one unsent message in memory, however slowly its client reads.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from tidemill_serving.errors import Code
from tidemill_serving.grpc_api.call import TOO_LATE, Call, status_of

_MOST_CALLS = 1000  # of all connections
_MESSAGES_AT_ONCE = 16  # of one call in one turn of the event loop
_STOPPING = "the server is stopping"


class Dialog(Protocol):
    """State of one streamed call."""

    @property
    def ended(self) -> bool:
        """Whether the answer has no more messages."""

    def next(self) -> bytes | None:
        """Return the next message of the answer; None if there is none now.

        Raises:
            RequestError: The call fails with this status.
        """


class StreamedCalls:
    """The streamed calls in progress. All methods are called on the event loop.

    Args:
        loop: The running event loop.
        methods: Begins the dialog of a call, by path.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, methods: Mapping[bytes, Callable[[Call], Dialog]]) -> None:
        self._loop = loop
        self._methods = methods
        self._open: dict[Call, tuple[Dialog, asyncio.TimerHandle | None]] = {}
        self._woken = self._closed = False

    @property
    def num_open(self) -> int:
        """Number of calls in progress."""
        return len(self._open)

    def advance(self, call: Call) -> None:
        """Do what can be done now: read messages and send messages.

        Args:
            call: The call; no effect if it is over, or while a message waits to be written.
        """
        if not call.is_over and call not in self._open:
            self._begin(call)
        for _ in range(_MESSAGES_AT_ONCE):
            if call.is_over or len(call.pending):
                return
            dialog = self._open[call][0]
            try:
                message = dialog.next()
            except Exception as error:  # noqa: BLE001  # an error of one call must not stop the server
                status = status_of(error)
                call.fail(status.code, status.message)
                return
            if message is None:
                if dialog.ended:
                    call.end()
                return
            call.send(message)
        self._loop.call_soon(self.advance, call)

    def dropped(self, call: Call) -> None:
        """Forget a call, which is over.

        Args:
            call: The call.
        """
        _, timer = self._open.pop(call, (None, None))
        if timer is not None:
            timer.cancel()

    def wake(self) -> None:
        """Advance all calls, soon, because what they watch has changed."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._wake)

    def close(self) -> None:
        """End all calls with UNAVAILABLE after a last message, and refuse new ones."""
        self._closed = True
        self._wake()
        for call in list(self._open):
            call.fail(Code.UNAVAILABLE, _STOPPING)

    def _wake(self) -> None:
        self._woken = False
        for call in list(self._open):
            self.advance(call)

    def _begin(self, call: Call) -> None:
        head = call.head
        if head.timeout_fault:
            call.fail(Code.INVALID_ARGUMENT, f"grpc-timeout {head.timeout_fault!r} is no time")
        elif self._closed:
            call.fail(Code.UNAVAILABLE, _STOPPING)
        elif len(self._open) >= _MOST_CALLS:
            call.fail(Code.UNAVAILABLE, f"{_MOST_CALLS} streams are open; try again later")
        else:
            timer = None
            if head.timeout_s is not None:
                timer = self._loop.call_later(head.timeout_s, call.fail, Code.DEADLINE_EXCEEDED, TOO_LATE)
            self._open[call] = (self._methods[head.path](call), timer)
