"""What the parts of the service are opened with, and closed by."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import structlog

from tidemill.core.spans import Spans
from tidemill.server.keys import Keys
from tidemill.server.state import StateDirectory
from tidemill.settings import Settings

_log = structlog.get_logger("tidemill.server")


@dataclass(frozen=True, slots=True)
class Startup:
    """One start of the service.

    Attributes:
        stack: Closes what is opened.
        state: The state directory, locked.
        keys: The owner's keys.
        url: URL for clients and jobs of this machine.
        public_url: URL for other machines; empty if the service does not listen for them.
        relay: Host and port at which a standby service reaches this one.
        spans: Where spans of traces go; None if nothing is traced.
        ends_waits: Called when the service is about to end: each answers requests at once that wait for news.
    """

    stack: AsyncExitStack
    settings: Settings
    state: StateDirectory
    keys: Keys
    url: str
    public_url: str
    relay: tuple[str, int]
    ends_waits: list[Callable[[], None]] = field(default_factory=list)
    spans: Spans | None = None

    def run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run ``work`` until the stack unwinds; a failure is logged when it happens, not when the result is awaited."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_report)
        self.stack.push_async_callback(_cancelled, task)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("background.failed", task=task.get_name(), exc_info=task.exception())


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
