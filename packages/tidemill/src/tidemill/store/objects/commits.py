"""Commits of the object store. They are never cancelled, and remove content that no row names any more.

A client that disconnects cancels its handler, but not a commit in progress. The steps that belong to the commit must
therefore not be cancelled either: to keep the content that the new row names, and to retire the content of the old row.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from sqlalchemy import Connection

from tidemill.core import faults
from tidemill.errors import ServiceUnavailable, StateCorrupt
from tidemill.store.database.base import Database
from tidemill.store.objects import index as object_index
from tidemill.store.objects.contents import Contents
from tidemill.store.objects.errors import disk_errors

__all__ = ["Commits", "Work"]

Work = Callable[[Connection], Iterable[str]]
"""Changes rows inside a transaction; returns the ids of content that those rows named before."""


class Commits:
    """Transactions of the object store.

    Args:
        database: Stores the rows.
        contents: Stores the bytes.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._running: set[asyncio.Task[None]] = set()

    async def naming(self, content_id: str, work: Work, *, grows: bool = True) -> None:
        """Run ``work``, which makes a row name new content. If nothing is committed, remove the content.

        Args:
            content_id: The new content.
            work: Changes the rows.
            grows: Refuse the change while the disk is full, as `Database.write`. Default: true.

        Raises:
            ServiceUnavailable: The change was not committed.
            Exception: Any exception of ``work``.
        """
        self._contents.of(content_id).hand_over(content_id)
        await self._to_the_end(self._name(content_id, work, grows=grows))

    async def releasing(self, work: Work, *, grows: bool = False) -> None:
        """Run ``work``, which may leave content without a row, and retire such content.

        Args:
            work: Changes the rows.
            grows: Refuse the change while the disk is full, as `Database.write`. Default: false.

        Raises:
            ServiceUnavailable: The change was not committed.
            Exception: Any exception of ``work``.
        """
        await self._to_the_end(self._release(work, grows=grows))

    async def drain(self) -> None:
        """Wait for the commits in progress."""
        while self._running:
            await asyncio.wait(self._running)

    async def _name(self, content_id: str, work: Work, *, grows: bool) -> None:
        try:
            with disk_errors("storing the description of an object"):
                faults.point("store.object.index")
            await self._release(work, grows=grows, named=[content_id])
        except BaseException:
            await self._remove_unless_named(content_id)
            raise
        self._contents.of(content_id).named(content_id)

    async def _release(self, work: Work, *, grows: bool, named: Iterable[str] = ()) -> None:
        def with_unnamed(connection: Connection) -> list[str]:
            released = object_index.unnamed_of(connection, set(work(connection)))
            self._contents.note_commit(connection, named=named, released=released)
            return released

        self._contents.retire(await self._database.write(with_unnamed, grows=grows))

    async def _remove_unless_named(self, content_id: str) -> None:
        # An error does not prove that nothing was committed, because only the reply may have been lost. If reading
        # fails too, the sweep at the next start decides.
        with contextlib.suppress(ServiceUnavailable, StateCorrupt):
            if self._database.read(lambda connection: object_index.unnamed_of(connection, [content_id])):
                await self._contents.of(content_id).discard(content_id)

    async def _to_the_end(self, commit: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(commit)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_hear)
            raise


def _hear(task: "asyncio.Task[None]") -> None:
    """Retrieve the task's exception, which has no receiver: the client has left and will see the result later."""
    if not task.cancelled():
        task.exception()
