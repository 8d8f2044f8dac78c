"""Group commit: a queue of works, and one thread that commits all works that wait as one group.

So many durable writes cost one fsync. The database defines what a commit is and what happens if it fails.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from sqlalchemy import Connection

from tidemill.errors import ServiceUnavailable

__all__ = ["GROUP_MAX_WORKS", "PendingWork", "Writer"]

T = TypeVar("T")

GROUP_MAX_WORKS = 1000


@dataclass(slots=True)
class PendingWork:
    """A work in the queue.

    Attributes:
        run: The work.
        grows: As for `Database.write`.
        future: The future that its caller waits for.
        loop: The caller's event loop; None if a plain thread waits.
        result: Set by the commit.
        error: Set by the commit if the work failed or was not committed.
    """

    run: Callable[[Connection], Any]
    grows: bool
    future: "asyncio.Future[Any] | Future[Any]"
    loop: asyncio.AbstractEventLoop | None
    result: Any = field(default=None)
    error: BaseException | None = field(default=None)

    def deliver(self) -> None:
        """Set the result or the error of the future, unless its caller was cancelled."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """One thread that commits groups of works in the order in which they were submitted.

    Args:
        commit: Runs and commits a group in the writer's thread; afterwards every work has its result or its error.
            If it raises an exception, which is a defect, all works of the group get it as their error.
        database: Names the database in messages.
    """

    def __init__(self, commit: Callable[[list[PendingWork]], None], *, database: str) -> None:
        self._commit = commit
        self._database = database
        self._queue: SimpleQueue[PendingWork | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="store-write", daemon=True)
        self._thread.start()

    async def write(self, work: Callable[[Connection], T], *, grows: bool) -> T:
        """Submit ``work`` and return its result once its group is committed."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._submit(PendingWork(work, grows, future, loop))
        return await future

    def write_sync(self, work: Callable[[Connection], T], *, grows: bool) -> T:
        """Do the same as `write`, in a plain thread."""
        future: Future[T] = Future()
        self._submit(PendingWork(work, grows, future, None))
        return future.result()

    def require_open(self) -> None:
        """Raise ServiceUnavailable if the writer is closed."""
        if self._closed:
            raise ServiceUnavailable(
                f"the database {self._database} is closed: the service is shutting down; try again in a moment"
            )

    def close(self) -> bool:
        """Commit what is queued and end the thread; return False if the writer was closed before."""
        with self._gate:
            if self._closed:
                return False
            self._closed = True
            self._queue.put(None)
        self._thread.join()
        return True

    def _submit(self, pending: PendingWork) -> None:
        with self._gate:
            self.require_open()
            self._queue.put(pending)

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            group, last = self._group(first)
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - a defect must not leave callers waiting forever
                for pending in group:
                    pending.error = error
            _deliver(group)
            if last:
                return

    def _group(self, first: PendingWork) -> tuple[list[PendingWork], bool]:
        group = [first]
        while len(group) < GROUP_MAX_WORKS:
            try:
                pending = self._queue.get_nowait()
            except Empty:
                break
            if pending is None:
                return group, True
            group.append(pending)
        return group, False


def _deliver(group: list[PendingWork]) -> None:
    """Wake every caller, with one call into each event loop for all callers that wait there."""
    by_loop: dict[asyncio.AbstractEventLoop, list[PendingWork]] = {}
    for pending in group:
        if pending.loop is None:
            pending.deliver()
        else:
            by_loop.setdefault(pending.loop, []).append(pending)
    for loop, waiting in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed, and its callers with it
            loop.call_soon_threadsafe(_deliver_all, waiting)


def _deliver_all(waiting: list[PendingWork]) -> None:
    for pending in waiting:
        pending.deliver()
