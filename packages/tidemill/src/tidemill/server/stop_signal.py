"""SIGTERM and SIGINT, handled at any time: a service that takes over runs several event loops in sequence."""

import asyncio
import contextlib
import signal
from collections.abc import Generator
from types import FrameType


class StopSignal:
    """Whether the process was asked to end, for the main thread and the event loops that it runs."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    @contextlib.contextmanager
    def handled(self) -> Generator[None]:
        """Handle the signals inside the block, in place of their previous handlers."""
        before = [(number, signal.signal(number, self._handle)) for number in (signal.SIGTERM, signal.SIGINT)]
        try:
            yield
        finally:
            for number, handler in before:
                signal.signal(number, handler)

    def is_set(self) -> bool:
        """Return whether a signal has arrived."""
        return self._is_set

    async def wait(self) -> None:
        """Wait until a signal has arrived. One task may wait at a time."""
        self._waiting = (asyncio.get_running_loop(), asyncio.Event())
        try:
            if not self._is_set:
                await self._waiting[1].wait()
        finally:
            self._waiting = None

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set = True
        if self._waiting is not None:
            loop, event = self._waiting
            loop.call_soon_threadsafe(event.set)
