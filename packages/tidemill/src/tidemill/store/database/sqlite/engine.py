"""Connections to SQLite files: how one is opened, which settings make it durable, what its errors mean."""

import contextlib
import os
import sqlite3
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from tidemill.errors import ConfigurationError, StateCorrupt

__all__ = [
    "check_file",
    "copy",
    "corrupt_file",
    "in_transaction",
    "is_corrupt",
    "is_full",
    "is_unavailable",
    "make_engine",
    "raw_connection",
    "shrink_log",
]

BUSY_TIMEOUT_S = 10.0
QUICK_CHECK_MAX_BYTES = 64 * 1024 * 1024
"""Larger files are not scanned at start: every row carries its own checksum anyway."""

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


def make_engine(path: Path, *, read_only: bool) -> Engine:
    """Make an engine without a pool on the database file ``path``.

    Transactions begin when SQLAlchemy begins them; the driver would do so only at the first write. Unless
    ``read_only``, they take the write lock at their beginning.
    """

    def connect() -> sqlite3.Connection:
        raw = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)
        raw.text_factory = _decode
        for pragma in _PRAGMAS:
            raw.execute(pragma).close()
        if read_only:
            raw.execute("PRAGMA query_only=ON").close()
        return raw

    engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=NullPool)
    statement = "BEGIN" if read_only else "BEGIN IMMEDIATE"

    def begin(connection: Connection) -> None:
        raw_connection(connection).execute(statement).close()

    event.listen(engine, "begin", begin)
    return engine


def raw_connection(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection of a SQLAlchemy connection."""
    raw = connection.connection.dbapi_connection
    if not isinstance(raw, sqlite3.Connection):
        raise TypeError(f"expected a sqlite3 connection below {connection!r}; received {raw!r}")
    return raw


def in_transaction(connection: Connection) -> bool:
    """Whether the file's transaction is still open: SQLite itself rolls back on some errors, e.g. a full disk."""
    return raw_connection(connection).in_transaction


def shrink_log(connection: Connection, path: Path) -> bool:
    """Checkpoint the write-ahead log of ``path`` if there is room for it; return whether that freed space."""
    log = path.with_name(f"{path.name}-wal")
    before = log.stat().st_size
    disk = os.statvfs(path.parent)
    if disk.f_bavail * disk.f_frsize < before:  # half a checkpoint frees nothing, and uses the space that is left
        return False
    with contextlib.suppress(sqlite3.OperationalError):  # what counts is the size
        raw_connection(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return log.stat().st_size < before


def check_file(path: Path) -> None:
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
        raw = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S)
        try:
            raw.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if path.stat().st_size <= QUICK_CHECK_MAX_BYTES:
                (result,) = raw.execute("PRAGMA quick_check(1)").fetchone()
                if result != "ok":
                    raise corrupt_file(path, result)
        finally:
            raw.close()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # UnicodeDecodeError: damage in the schema
        raise corrupt_file(path, str(error)) from error


def copy(path: Path, target: Path) -> None:
    """Copy one snapshot of the database in ``path`` to the new file ``target``, durably.

    Raises:
        StateCorrupt: The copy, and so the database, is damaged.
        OSError: The copy cannot be written.
    """
    target.unlink(missing_ok=True)
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with (
            contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as source,
            contextlib.closing(sqlite3.connect(target)) as copied,
        ):
            source.backup(copied)  # in one step: smaller ones begin again at every commit
            # Without a separate log file the copy is one file, which cp can put in place.
            copied.execute("PRAGMA journal_mode=DELETE").close()
            (result,) = copied.execute("PRAGMA quick_check(1)").fetchone()
        os.fsync(fd)
    except sqlite3.Error as error:
        if is_corrupt(error):
            result = str(error)
        else:
            raise OSError(f"cannot copy the database {path} to {target}: {error}") from error
    finally:
        os.close(fd)
    if result != "ok":
        raise StateCorrupt(f"no backup was made: {corrupt_file(path, result)}")


def corrupt_file(path: Path, reason: str) -> ConfigurationError:
    """Return the error for a damaged file; it says how to recover."""
    backups = path.parent / "backups"
    newest = max(backups.glob("*.db"), default=None)
    source = newest or backups / "NEWEST.db"
    hint = "" if newest else " (there is none yet)"
    return ConfigurationError(
        f"the database {path} is damaged: {reason}. Hourly backups lie in {backups}{hint}. To go back to one: stop the"
        f" service, move {path.name}, {path.name}-wal and {path.name}-shm out of {path.parent},"
        f" then `cp {source} {path}`, and start the service again"
    )


def is_full(error: BaseException) -> bool:
    """Whether the disk (or the file's quota) is full."""
    return _code(error) == sqlite3.SQLITE_FULL


def is_corrupt(error: BaseException) -> bool:
    """Whether SQLite found the file damaged."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_unavailable(error: BaseException) -> bool:
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
