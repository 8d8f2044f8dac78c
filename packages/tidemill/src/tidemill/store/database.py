"""One database file, one writer thread, many readers.

Every change is a function that runs in the writer thread. All functions that wait while a commit is on its way are
run in the next transaction, each in its own savepoint, and share one commit: many durable writes cost one fsync.
"""

import asyncio
import contextlib
import errno
import secrets
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, MetaData, insert, select
from sqlalchemy.exc import DBAPIError

from tidemill.core import faults
from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store import sqlite
from tidemill.store.ballast import Ballast
from tidemill.store.schema import SCHEMA_VERSION, meta

__all__ = ["Database"]

T = TypeVar("T")

GROUP_MAX_WORKS = 1000
READ_THREADS = 4
FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


class Database:
    """Durable tables. When an awaited `write` returns, what it did survives kill -9 and power loss.

    Open it with `Database.open`; one process at a time writes.
    """

    def __init__(self, path: Path, *, writer: Engine, reader: Engine, ballast: Ballast | None = None) -> None:
        self.path = path
        self._reader = reader
        self._ballast = ballast
        self._idle: deque[Connection] = deque()
        self._threads = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="store-read")
        self._queue: SimpleQueue[_Pending | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._writer = writer
        self._connection = writer.connect()
        self._thread = threading.Thread(target=self._serve, name="store-write", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path, *, metadata: MetaData, ballast: Ballast | None = None) -> "Database":
        """Open the database file, making it and the tables of ``metadata`` where they are missing.

        Args:
            path: The file; its directory must exist.
            metadata: All tables that will be used.
            ballast: Room that is given up when the disk is full. Laid here if it is not.

        Raises:
            ConfigurationError: The file is damaged, was written by a newer release, or cannot be opened.
        """
        sqlite.check_file(path)
        writer = sqlite.make_engine(path, read_only=False)
        try:
            with writer.begin() as connection:
                _prepare(connection, metadata, path)
        except DBAPIError as error:
            if sqlite.is_corrupt(error):
                raise sqlite.corrupt_file(path, str(error.orig)) from error
            raise ConfigurationError(
                f"cannot open the database {path}: {error.orig}; check that its directory exists, is writable"
                " and has room"
            ) from error
        path.chmod(0o600)
        if ballast is not None:
            ballast.lay()
        return cls(path, writer=writer, reader=sqlite.make_engine(path, read_only=True), ballast=ballast)

    async def write(self, work: Callable[[Connection], T], *, grows: bool = False) -> T:
        """Run ``work`` in the writer thread and return its result once it is durable.

        Args:
            work: Gets the connection, inside a transaction that it must neither commit nor roll back. May be run
                again when the first try could not be committed, so it changes nothing but the database. No network,
                no subprocess, no waiting.
            grows: It stores something new, and is refused while the disk is full. Others (deletes, stops) then go
                on in the room that the ballast gave up.

        Raises:
            ServiceUnavailable: Not committed: the disk is full or failing, or the database is closed.
            StateCorrupt: The file is damaged.
            Exception: Whatever ``work`` raises; what it did is rolled back, its neighbours are not.

        A cancelled caller does not take its work back.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._submit(_Pending(work, grows, future, loop))
        return await future

    def write_sync(self, work: Callable[[Connection], T], *, grows: bool = False) -> T:
        """As `write`, for plain threads. Never call it in an event loop or inside ``work``."""
        future: Future[T] = Future()
        self._submit(_Pending(work, grows, future, None))
        return future.result()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run ``work`` on one snapshot of what is committed. For look-ups that are quick enough for the event loop.

        Raises:
            ServiceUnavailable: The file cannot be read now.
            StateCorrupt: The file is damaged.
        """
        try:
            with self._snapshot() as connection:
                return work(connection)
        except DBAPIError as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error

    async def read_in_thread(self, work: Callable[[Connection], T]) -> T:
        """As `read`, in a thread: for everything that may take longer than a millisecond."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.read, work)

    def secret(self, name: str) -> str:
        """The random secret ``name`` of this database (64 hexadecimal digits), made at first use."""
        key = f"secret.{name}"
        query = select(meta.c.value).where(meta.c.key == key)

        def make(connection: Connection) -> str:
            present = connection.execute(query).scalar()
            if present is not None:
                return str(present)
            value = secrets.token_hex(32)
            connection.execute(insert(meta).values(key=key, value=value))
            return value

        present = self.read(lambda connection: connection.execute(query).scalar())
        return str(present) if present is not None else self.write_sync(make)

    def close(self) -> None:
        """Commit what is queued, then close. Closing twice does nothing."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue.put(None)
        self._thread.join()
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

    @contextlib.contextmanager
    def _snapshot(self) -> Generator[Connection]:
        if self._closed:
            raise _closed(self.path)
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._reader.connect()
        try:
            yield connection
        except BaseException:
            connection.close()  # whatever state it is in
            raise
        connection.rollback()
        self._idle.append(connection)

    def _submit(self, pending: "_Pending") -> None:
        with self._gate:
            if self._closed:
                raise _closed(self.path)
            self._queue.put(pending)

    def _serve(self) -> None:
        while (first := self._queue.get()) is not None:
            group, last = self._group(first)
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - a defect must not leave callers waiting for ever
                for pending in group:
                    pending.error = error
                self._reconnect()
            _deliver(group)
            if last:
                return

    def _group(self, first: "_Pending") -> "tuple[list[_Pending], bool]":
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

    def _commit(self, group: "list[_Pending]") -> None:
        """Run and commit a group; afterwards every pending work has its result or its error."""
        if self._ballast is not None:
            self._ballast.lay_if_due()
        try:
            self._attempt(group)
        except _NotCommitted as failure:
            if not (failure.full and self._make_room()):
                self._refuse(group, failure)
                return
            try:
                self._attempt(group)
            except _NotCommitted as second:
                self._refuse(group, second)

    def _make_room(self) -> bool:
        released = self._ballast is not None and self._ballast.release()
        return sqlite.shrink_log(self._connection, self.path) or released

    def _attempt(self, group: "list[_Pending]") -> None:
        try:
            with self._connection.begin():
                for pending in group:
                    self._run(pending)
                faults.point("store.commit.before")
        except (DBAPIError, OSError) as error:
            raise _NotCommitted(error) from error
        try:
            faults.point("store.commit.after")
        except OSError as error:  # the reply is lost, the rows are not
            self._refuse(group, _NotCommitted(error))

    def _run(self, pending: "_Pending") -> None:
        pending.result = pending.error = None
        if pending.grows and self._ballast is not None and not self._ballast.has_room:
            pending.error = ServiceUnavailable(
                f"the disk of {self.path.parent} is full; only stops and deletes are accepted until there is room"
                " again. Delete objects or jobs, or free space on the disk, then repeat the request"
            )
            return
        savepoint = self._connection.begin_nested()
        try:
            pending.result = pending.work(self._connection)
            savepoint.commit()
        except BaseException as error:
            if sqlite.is_full(error) or not sqlite.in_transaction(self._connection):
                raise _NotCommitted(error) from error
            savepoint.rollback()
            pending.error = self._translate(error)

    def _reconnect(self) -> None:
        self._connection.invalidate()
        self._connection.close()
        self._connection = self._writer.connect()

    def _refuse(self, group: "list[_Pending]", failure: "_NotCommitted") -> None:
        for pending in group:
            pending.error = ServiceUnavailable(
                f"the database {self.path} could not commit: {failure.reason}. Nothing of this request is certain to"
                " be stored; free space or mend the disk, then repeat the request"
            )

    def _translate(self, error: BaseException) -> BaseException:
        if sqlite.is_corrupt(error):
            return StateCorrupt(str(sqlite.corrupt_file(self.path, _reason(error))))
        if sqlite.is_unavailable(error):
            return ServiceUnavailable(f"the database {self.path} cannot be used now: {_reason(error)}; try again")
        return error


@dataclass(slots=True)
class _Pending:
    """One queued work; ``loop`` is None where a plain thread waits."""

    work: Callable[[Connection], Any]
    grows: bool
    future: "asyncio.Future[Any] | Future[Any]"
    loop: asyncio.AbstractEventLoop | None
    result: Any = field(default=None)
    error: BaseException | None = field(default=None)

    def settle(self) -> None:
        if self.future.done():  # its caller was cancelled
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _NotCommitted(Exception):
    """A group's transaction is lost."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.full = sqlite.is_full(cause) or getattr(cause, "errno", None) in FULL_ERRNOS
        self.reason = _reason(cause)


def _reason(error: BaseException) -> str:
    return str(error.orig) if isinstance(error, DBAPIError) else str(error)


def _closed(path: Path) -> ServiceUnavailable:
    return ServiceUnavailable(f"the database {path} is closed: the service is shutting down; try again in a moment")


def _deliver(group: list[_Pending]) -> None:
    """Wake every caller; one call into each event loop, however many wait there."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Pending]] = {}
    for pending in group:
        if pending.loop is None:
            pending.settle()
        else:
            by_loop.setdefault(pending.loop, []).append(pending)
    for loop, waiting in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, waiting)


def _settle(waiting: list[_Pending]) -> None:
    for pending in waiting:
        pending.settle()


def _prepare(connection: Connection, metadata: MetaData, path: Path) -> None:
    meta.create(connection, checkfirst=True)
    found = connection.execute(select(meta.c.value).where(meta.c.key == "schema_version")).scalar()
    if found is None:
        connection.execute(insert(meta).values(key="schema_version", value=str(SCHEMA_VERSION)))
    elif int(found) != SCHEMA_VERSION:
        raise ConfigurationError(
            f"the database {path} has schema version {found}; this release knows version {SCHEMA_VERSION}."
            " Start the release that wrote it, or another state directory (TIDEMILL_STATE_DIR)"
        )
    metadata.create_all(connection)
