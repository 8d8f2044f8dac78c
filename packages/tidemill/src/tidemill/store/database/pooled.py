"""Base of databases with one writer thread and many readers, whose connections come from SQLAlchemy engines.

The writer runs all works that wait as one group: in one transaction, each in its own savepoint, with one commit. So
many durable writes cost one fsync. The database defines what a commit is and what happens if it fails. A reader borrows
an idle connection, or opens one, for one transaction.
"""

import asyncio
import contextlib
import threading
import time
from abc import abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from tidemill.core.exposition import DURATIONS_S
from tidemill.errors import ServiceUnavailable
from tidemill.store.database.base import Commits, ConstantStatement, Database

T = TypeVar("T")

READ_THREADS = 4
GROUP_MAX_WORKS = 1000


class NotCommitted(Exception):
    """The transaction of a group was not committed, and none of its works have an effect.

    Attributes:
        cause: The error that ended the transaction.
    """

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass(slots=True)
class PendingWork:
    """A work in the queue.

    Attributes:
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
        self._writer = _Writer(self._commit_or_reconnect, database=name)

    @property
    def commits(self) -> Commits:
        return self._writer.commits

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

    def row(self, statement: ConstantStatement, parameters: Mapping[str, Any]) -> Sequence[Any] | None:
        rows = self.read(lambda connection: execute(connection, statement, parameters))
        return rows[0] if rows else None

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
        self._savepoint("SAVEPOINT work")
        try:
            pending.result = pending.run(self._connection)
            self._savepoint("RELEASE work")
        except BaseException as error:
            if self._has_lost_transaction(error):
                raise NotCommitted(error) from error
            self._savepoint("ROLLBACK TO work")
            self._savepoint("RELEASE work")
            pending.error = self._translate(error)

    def _savepoint(self, text: str) -> None:
        """Run a statement about a savepoint, by the driver: SQLAlchemy would compile it anew for each work."""
        cursor = self._connection.connection.cursor()
        driver = self._connection.dialect.loaded_dbapi
        try:
            cursor.execute(text)
        except driver.Error as error:
            raise DBAPIError.instance(text, None, error, driver.Error) from error
        finally:
            cursor.close()

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


def execute(
    connection: Connection, statement: ConstantStatement, parameters: Mapping[str, Any]
) -> Sequence[Sequence[Any]]:
    """Run a statement in a work, and return its rows; none if it selects nothing.

    A driver with positional parameters, as SQLite's, runs it in a third of the time that SQLAlchemy takes.

    Args:
        connection: The work's.
        parameters: Values of the bind parameters, by name.

    Raises:
        DBAPIError: As `Connection.execute`.
    """
    dialect = connection.dialect
    if dialect.paramstyle != "qmark":
        result = connection.execute(statement.core, parameters)
        return result.all() if result.returns_rows else ()
    text, names = statement.compiled or statement.compile(dialect)
    cursor = connection.connection.cursor()
    try:
        cursor.execute(text, list(map(parameters.__getitem__, names)))
        return cursor.fetchall()
    except dialect.loaded_dbapi.Error as error:
        raise DBAPIError.instance(text, dict(parameters), error, dialect.loaded_dbapi.Error) from error
    finally:
        cursor.close()


def reason_of(error: BaseException) -> str:
    """Return the text of an error; that of the driver's error if there is one.

    Args:
        error: Any error; one of SQLAlchemy's driver is unwrapped.
    """
    return str(error.orig) if isinstance(error, DBAPIError) else str(error)


class _Writer:
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
        self.commits = Commits()
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
            begun_s = time.perf_counter()
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - a defect must not leave callers waiting forever
                for pending in group:
                    pending.error = error
            elapsed_s = time.perf_counter() - begun_s
            self.commits.by_duration[bisect_left(DURATIONS_S, elapsed_s)] += 1
            self.commits.seconds += elapsed_s
            self.commits.works += len(group)
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
