"""One SQLite file, one writer thread, many readers.

This file determines how a connection is opened, which settings make it durable, what SQLite's errors mean, and how
deletes and stops are committed on a full disk.
"""

import contextlib
import errno
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, MetaData, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from tidemill.core import faults
from tidemill.core.clock import Clock, SystemClock
from tidemill.errors import ConfigurationError, ServiceUnavailable, StateCorrupt
from tidemill.store.database.base import ConstantStatement
from tidemill.store.database.pooled import (
    NotCommitted,
    PendingWork,
    PooledDatabase,
    reason_of,
)
from tidemill.store.database.revisions import bring_up_to_date

FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
BUSY_TIMEOUT_S = 10.0
QUICK_CHECK_MAX_BYTES = 64 * 1024 * 1024
"""Larger files are not scanned at start: every row carries its own checksum anyway."""
RESERVED_BYTES = 64 * 1024 * 1024
"""Several times the database's write-ahead log (16 MiB), whose checkpoint needs the released space."""
RESERVED_SHARE = 20
"""On a small disk, a twentieth of the free space is reserved: the database and its log are small there, too."""
LEAST_RESERVED_BYTES = 1024 * 1024
"""Less would not be enough for the deletes and stops while the disk is full."""
RETRY_INTERVAL_S = 1.0

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",
    "PRAGMA cache_size=-16384",
    "PRAGMA wal_autocheckpoint=4000",
    "PRAGMA journal_size_limit=67108864",
    # Some builds overwrite every deleted page. A delete would then need free space, and could not help a full disk.
    "PRAGMA secure_delete=FAST",
)

# Text with a flipped byte must decode, so that the comparison of checksums finds the damage.
_decode = partial(str, encoding="utf-8", errors="surrogateescape")

_HEADER = b"SQLite format 3\0"


class ReservedSpace:
    """Space on the disk (*ballast*): a file of allocated blocks, removed when the disk is full, so that deletes commit.

    Args:
        size_bytes: Its size. None: 5 % of the free space when it is first reserved, from 1 to 64 MiB.
        clock: Times the attempts to reserve the space again.
    """

    def __init__(self, path: Path, *, size_bytes: int | None = None, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._tried_s: float | None = None
        present_bytes = path.stat().st_size if path.exists() else 0
        self._is_share = size_bytes is None
        self.size_bytes = max(LEAST_RESERVED_BYTES, present_bytes) if size_bytes is None else size_bytes
        self._held = present_bytes >= self.size_bytes

    @property
    def held(self) -> bool:
        """Whether the space is reserved. If not, the disk is full or was full a moment ago."""
        return self._held

    def has_room(self) -> bool:
        """Return whether something new may be stored: the space is reserved, and a quarter of its size is free besides.

        A database that still has unused pages notices a full disk late. Requests that it accepted until then could
        not be carried out. Tries to `reserve` the space again if it was released, at most every second.
        """
        if not self._held and (self._tried_s is None or self._clock.monotonic_s() - self._tried_s >= RETRY_INTERVAL_S):
            self.reserve()
        return self._held and self._free_bytes() >= self.size_bytes // 4

    def reserve(self) -> bool:
        """Reserve the space if twice as much is free; return whether it is reserved."""
        if self._held:
            return True
        self._tried_s = self._clock.monotonic_s()
        free_bytes = self._free_bytes()
        if self._is_share:  # it may grow, but never shrinks: it is needed when little space is free
            self.size_bytes = max(self.size_bytes, min(RESERVED_BYTES, free_bytes // RESERVED_SHARE))
        if free_bytes < 2 * self.size_bytes:
            return False
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self.size_bytes)
            os.fsync(fd)
        except OSError:  # another process took the space meanwhile
            self._remove()
            return False
        finally:
            os.close(fd)
        self._held = True
        return True

    def release(self) -> bool:
        """Remove the file; return whether the space was reserved."""
        if not self._held:
            return False
        self._held = False
        self._tried_s = self._clock.monotonic_s()
        self._remove()
        return True

    def _free_bytes(self) -> int:
        disk = os.statvfs(self.path.parent)
        return disk.f_bavail * disk.f_frsize

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


class SqliteDatabase(PooledDatabase):
    """The `Database` in one SQLite file. Open it with `SqliteDatabase.open`; one process at a time writes."""

    def __init__(self, path: Path, *, writer: Engine, reader: Engine, reserved: ReservedSpace | None = None) -> None:
        self.path = path
        self._reserved = reserved
        self._has_room = True  # for the works of the group that is being committed
        self._looking_up: deque[sqlite3.Connection] = deque()
        super().__init__(str(path), writer=writer, reader=reader)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        metadata: MetaData,
        reserved: ReservedSpace | None = None,
        before_creation: Callable[[], None] = lambda: None,
    ) -> "SqliteDatabase":
        """Open the database file; create it if it is missing, migrate it if an older release wrote it.

        Args:
            path: The file; its directory must exist.
            metadata: All tables that will be used.
            reserved: Space to release when the disk is full. It is reserved here if it is not reserved yet.
            before_creation: Called before a new database is created; raises an exception to refuse that.

        Raises:
            ConfigurationError: The file is damaged, was written by a newer release, or cannot be opened.
        """
        if not path.exists() or path.stat().st_size == 0:
            # Called again for a file without tables. Here it protects the log of a lost file: SQLite would remove it.
            before_creation()
        _check_file(path)
        writer = _make_engine(path, read_only=False)
        try:
            with writer.begin() as connection:
                bring_up_to_date(connection, metadata, database=str(path), before_creation=before_creation)
        except DBAPIError as error:
            if is_corrupt(error):
                raise corrupt_file(path, str(error.orig)) from error
            raise ConfigurationError(
                f"cannot open the database {path}: {error.orig}; check that its directory exists, is writable"
                " and has room"
            ) from error
        path.chmod(0o600)
        if reserved is not None:
            reserved.reserve()
        return cls(path, writer=writer, reader=_make_engine(path, read_only=True), reserved=reserved)

    def row(self, statement: ConstantStatement, parameters: Mapping[str, Any]) -> Sequence[Any] | None:
        # One statement needs no transaction, so the driver alone does.
        try:
            raw = self._looking_up.pop() if self._looking_up else self._connect_reader()
            text, names = statement.compiled or statement.compile(self._reader.dialect)
            rows = raw.execute(text, list(map(parameters.__getitem__, names))).fetchall()
        except sqlite3.Error as error:
            translated = self._translate(error)
            if translated is error:
                raise
            raise translated from error
        self._looking_up.append(raw)
        return rows[0] if rows else None

    def close(self) -> None:
        super().close()
        while self._looking_up:
            self._looking_up.pop().close()

    def _connect_reader(self) -> sqlite3.Connection:
        self._writer.require_open()
        return _connect(self.path, read_only=True)

    def _commit(self, group: list[PendingWork]) -> None:
        try:
            self._attempt(group)
        except NotCommitted as failure:
            if not (_is_full(failure.cause) and self._make_room()):
                self._refuse(group, failure)
                return
            try:
                self._attempt(group)
            except NotCommitted as second:
                self._refuse(group, second)

    def _make_room(self) -> bool:
        released = self._reserved is not None and self._reserved.release()
        return _shrink_log(self._connection, self.path) or released

    def _attempt(self, group: list[PendingWork]) -> None:
        try:
            self._has_room = self._reserved is None or self._reserved.has_room()
            with self._connection.begin():
                for pending in group:
                    self._run(pending)
                faults.point("store.commit.before")
        except (DBAPIError, sqlite3.Error, OSError) as error:
            raise NotCommitted(error) from error
        try:
            faults.point("store.commit.after")
        except OSError as error:  # the reply is lost, the rows are not
            self._refuse(group, NotCommitted(error))

    def _run(self, pending: PendingWork) -> None:
        if pending.grows and not self._has_room:
            pending.result = None
            pending.error = ServiceUnavailable(
                f"the disk of {self.path.parent} is full; only stops and deletes are accepted until there is room"
                " again. Delete objects or jobs, or free space on the disk, then repeat the request"
            )
            return
        super()._run(pending)

    def _has_lost_transaction(self, error: BaseException) -> bool:
        return _is_sqlite_full(error) or not _in_transaction(self._connection)

    def _refuse(self, group: list[PendingWork], failure: NotCommitted) -> None:
        reason = reason_of(failure.cause)
        for pending in group:
            pending.error = ServiceUnavailable(
                f"the database {self.path} could not commit: {reason}. Nothing of this request is certain to be stored;"
                " free space or mend the disk, then repeat the request"
            )

    def _translate(self, error: BaseException) -> BaseException:
        if is_corrupt(error):
            return StateCorrupt(str(corrupt_file(self.path, reason_of(error))))
        if _is_unavailable(error):
            return ServiceUnavailable(f"the database {self.path} cannot be used now: {reason_of(error)}; try again")
        return error


def corrupt_file(path: Path, reason: str) -> ConfigurationError:
    """Return the error for a damaged file; it says how to recover.

    Args:
        path: The database's file.
        reason: What SQLite said.
    """
    return ConfigurationError(f"the database {path} is damaged: {reason}. {way_back(path)}")


def way_back(path: Path) -> str:
    """Return the text that says how to replace a lost or damaged file by a backup.

    Args:
        path: The database's file; backups are looked for beside it.
    """
    backups = path.parent / "backups"
    newest = max(backups.glob("*.db"), default=None)
    source = newest or backups / "NEWEST.db"
    hint = "" if newest else " (there is none yet)"
    return (
        f"Hourly backups lie in {backups}{hint}. To go back to one: stop the service, move {path.name},"
        f" {path.name}-wal and {path.name}-shm, if they exist, out of {path.parent}, then `cp {source} {path}`, and"
        " start the service again"
    )


def is_corrupt(error: BaseException) -> bool:
    """Return whether SQLite found the file damaged.

    Args:
        error: Any error.
    """
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _check_file(path: Path) -> None:
    """Refuse a file that a quick check finds damaged.

    Raises:
        ConfigurationError: It is torn or corrupt; the message says how to recover.
    """
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        if file.read(len(_HEADER)) != _HEADER:
            raise corrupt_file(path, "it is not an SQLite database")
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)) as raw:
            raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            is_small = path.stat().st_size <= QUICK_CHECK_MAX_BYTES
            (result,) = raw.execute("PRAGMA quick_check(1)").fetchone() if is_small else ("ok",)
            if result != "ok":
                raise corrupt_file(path, result)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # UnicodeDecodeError: damage in the schema
        raise corrupt_file(path, str(error)) from error


def _connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)
    raw.text_factory = _decode
    for pragma in _PRAGMAS:
        raw.execute(pragma).close()
    if read_only:
        raw.execute("PRAGMA query_only=ON").close()
    return raw


def _make_engine(path: Path, *, read_only: bool) -> Engine:
    """Make an engine without a pool on the database file ``path``.

    Transactions begin when SQLAlchemy begins them; the driver would do so only at the first write. Unless
    ``read_only``, they take the write lock at their beginning.
    """

    engine = create_engine(
        "sqlite+pysqlite://", creator=lambda: _connect(path, read_only=read_only), poolclass=NullPool
    )
    statement = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    def begin(connection: Connection) -> None:
        _raw_connection(connection).execute(statement).close()

    event.listen(engine, "begin", begin)
    return engine


def _shrink_log(connection: Connection, path: Path) -> bool:
    """Checkpoint the write-ahead log of ``path`` if there is room for it; return whether that freed space."""
    log = path.with_name(f"{path.name}-wal")
    before = log.stat().st_size
    disk = os.statvfs(path.parent)
    if disk.f_bavail * disk.f_frsize < before:  # half a checkpoint frees nothing, and uses the space that is left
        return False
    with contextlib.suppress(sqlite3.OperationalError):  # what counts is the size
        _raw_connection(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return log.stat().st_size < before


def _raw_connection(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection of a SQLAlchemy connection."""
    raw = connection.connection.dbapi_connection
    if not isinstance(raw, sqlite3.Connection):
        raise TypeError(f"expected a sqlite3 connection below {connection!r}; received {raw!r}")
    return raw


def _in_transaction(connection: Connection) -> bool:
    """Whether the file's transaction is still open: SQLite itself rolls back on some errors, e.g. a full disk."""
    return _raw_connection(connection).in_transaction


def _is_full(error: BaseException) -> bool:
    return _is_sqlite_full(error) or getattr(error, "errno", None) in FULL_ERRNOS


def _is_sqlite_full(error: BaseException) -> bool:
    """Whether the disk (or the file's quota) is full."""
    return _code(error) == sqlite3.SQLITE_FULL


def _is_unavailable(error: BaseException) -> bool:
    """Whether the file cannot be used at this time, for a reason other than the statement."""
    return _code(error) in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
    )


def _code(error: BaseException) -> int | None:
    origin = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(origin, sqlite3.Error):
        return None
    code = getattr(origin, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF  # extended codes carry the kind in the low byte
