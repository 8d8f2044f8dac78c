"""Base of databases with one writer thread and many readers, whose connections come from SQLAlchemy engines.

The writer runs a group of works in one transaction, each in its own savepoint, and commits once. A reader borrows an
idle connection, or opens one, for one transaction.
"""

import asyncio
import contextlib
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from tidemill.store.database.base import Database
from tidemill.store.database.writer import PendingWork, Writer

__all__ = ["NotCommitted", "PooledDatabase", "reason_of"]

T = TypeVar("T")

READ_THREADS = 4


class NotCommitted(Exception):
    """The transaction of a group was not committed, and none of its works have an effect.

    Attributes:
        cause: The error that ended the transaction.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PooledDatabase(Database):
    """A `Database` on two engines without pools.

    Args:
        name: Names the database in messages; no secrets.
        writer: Makes the connection of the writer thread.
        reader: Makes connections whose transactions read one snapshot and cannot write.
    """

    def __init__(self, name: str, *, writer: Engine, reader: Engine) -> None:
        self._name = name
        self._engine = writer
        self._reader = reader
        self._idle: deque[Connection] = deque()
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="store-read")
        self._connection = writer.connect()
        self._writer = Writer(self._commit_or_reconnect, database=name)

    async def write(self, work: Callable[[Connection], T], *, grows: bool = False) -> T:
        return await self._writer.write(work, grows=grows)

    def write_sync(self, work: Callable[[Connection], T], *, grows: bool = False) -> T:
        return self._writer.write_sync(work, grows=grows)

    def read(self, work: Callable[[Connection], T]) -> T:
        try:
            return self._read(work)
        except DBAPIError as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error

    async def read_in_thread(self, work: Callable[[Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.read, work)

    def close(self) -> None:
        if not self._writer.close():
            return
        self._threads.shutdown()
        while self._idle:
            self._idle.pop().close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            with self._snapshot() as connection:
                return work(connection)
        except DBAPIError as error:
            if not self._has_lost_connection(error):
                raise
        while self._idle:  # the other idle connections are to the same server and as old, so they are broken, too
            self._idle.pop().close()
        with self._snapshot() as connection:
            return work(connection)

    @abstractmethod
    def _commit(self, group: list[PendingWork]) -> None:
        """Run and commit a group in the writer's thread; afterwards every work has its result or its error."""

    @abstractmethod
    def _translate(self, error: BaseException) -> BaseException:
        """Return the error that callers get for an error of the driver, or the driver's own if it is clear enough."""

    @abstractmethod
    def _has_lost_transaction(self, error: BaseException) -> bool:
        """Whether the writer's transaction accepts no statement after this error, so that the whole group is lost."""

    def _has_lost_connection(self, error: BaseException) -> bool:
        """Whether the connection broke, so that the same work may succeed on a new one."""
        return False

    def _run(self, pending: PendingWork) -> None:
        """Run one work of a group in its savepoint.

        Raises:
            NotCommitted: The transaction of the group is lost.
        """
        pending.result = pending.error = None
        savepoint = self._connection.begin_nested()
        try:
            pending.result = pending.run(self._connection)
            savepoint.commit()
        except BaseException as error:
            if self._has_lost_transaction(error):
                raise NotCommitted(error) from error
            savepoint.rollback()
            pending.error = self._translate(error)

    @contextlib.contextmanager
    def _snapshot(self) -> Generator[Connection]:
        self._writer.require_open()
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._reader.connect()
        try:
            yield connection
        except BaseException:
            connection.close()  # its transaction may be broken
            raise
        connection.rollback()
        self._idle.append(connection)

    def _commit_or_reconnect(self, group: list[PendingWork]) -> None:
        try:
            self._commit(group)
        except BaseException:
            self._give_up_connection()
            raise

    def _give_up_connection(self) -> None:
        """Replace the writer's connection after a defect, which may have left a transaction open."""
        self._reconnect()

    def _reconnect(self) -> None:
        if not self._connection.closed:
            self._connection.invalidate()
            self._connection.close()
        self._connection = self._engine.connect()


def reason_of(error: BaseException) -> str:
    """Return the text of an error; that of the driver's error if there is one."""
    return str(error.orig) if isinstance(error, DBAPIError) else str(error)
