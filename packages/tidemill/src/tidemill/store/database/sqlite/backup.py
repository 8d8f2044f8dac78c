"""Copies of the database, made while it is in use.

Files are named by their UTC time, so that their names sort by age. A copy appears in the directory only when it is
complete and durable. The error for a damaged database says how to restore a copy.
"""

import asyncio
import contextlib
import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

from tidemill.core.clock import Clock, SystemClock
from tidemill.core.files import make_directory, sync_directory
from tidemill.errors import StateCorrupt
from tidemill.store.database.sqlite.database import BUSY_TIMEOUT_S, SqliteDatabase, corrupt_file, is_corrupt

BACKUP_INTERVAL_S = 3600.0
BACKUPS_KEPT = 24

_NAME_FORMAT = "%Y%m%dT%H%M%S.%fZ.db"
_TEMPORARY = ".backup.tmp"


def backup(database: SqliteDatabase, directory: Path, keep: int = BACKUPS_KEPT, *, clock: Clock | None = None) -> Path:
    """Copy the committed rows to a new file in ``directory``, and remove the oldest files beyond ``keep``.

    It blocks its caller while it copies, but not the writers of the database. Call it in a thread.

    Raises:
        StateCorrupt: The database is damaged; no older copy is removed.
        OSError: There is no room, or the directory cannot be written.
    """
    make_directory(directory, mode=0o700)
    now = datetime.fromtimestamp((clock or SystemClock()).now_ms() / 1000, UTC)
    target = directory / f"{now:{_NAME_FORMAT}}"
    temporary = directory / _TEMPORARY
    try:
        _copy(database.path, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(directory)
    for old in _backups(directory)[:-keep]:
        old.unlink()
    return target


class Backups:
    """Hourly copies of a database.

    Args:
        database: What to copy.
        directory: Directory of the copies: ``STATE/backups``.
        keep: How many copies to keep.
        interval_s: Time between copies, in seconds. It counts from the newest file, so that frequent restarts of the
            service do not cause more copies.
        clock: Names the files and gives their age.
    """

    def __init__(
        self,
        database: SqliteDatabase,
        directory: Path,
        *,
        keep: int = BACKUPS_KEPT,
        interval_s: float = BACKUP_INTERVAL_S,
        clock: Clock | None = None,
    ) -> None:
        self._database = database
        self._directory = directory
        self._keep = keep
        self._interval_s = interval_s
        self._clock = clock or SystemClock()

    def wait_s(self) -> float:
        """Seconds until the next copy is due; 0 when it is."""
        newest = _backups(self._directory)[-1:]
        if not newest:
            return 0.0
        age_s = self._clock.now_ms() / 1000 - newest[0].stat().st_mtime
        return min(max(0.0, self._interval_s - age_s), self._interval_s)

    def oldest_ms(self) -> int | None:
        """Return the time of the oldest copy, in milliseconds since the epoch; None without a copy."""
        times_ms = [_time_ms(file) for file in _backups(self._directory)]
        return min(times_ms, default=None)

    async def make(self) -> Path:
        """Make a copy now, in a thread. Raises the errors of `backup`."""
        return await asyncio.to_thread(backup, self._database, self._directory, self._keep, clock=self._clock)


def _copy(path: Path, target: Path) -> None:
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


def _time_ms(file: Path) -> int:
    """Return the time in the name of a copy. The time of the file changes if a user copies the directory."""
    try:
        return int(datetime.strptime(file.name, _NAME_FORMAT).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return int(file.stat().st_mtime * 1000)


def _backups(directory: Path) -> list[Path]:
    """Finished copies, oldest first."""
    return sorted(directory.glob("[0-9]*.db"))
