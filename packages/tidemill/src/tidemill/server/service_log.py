"""The file of the service's own log: limited in size and number, and read across its changes.

A detached service writes to `service.log` by its standard error, and so does everything in its process. When the file
is full, it becomes `service.log.1`, the one before `service.log.2` and so on, and the oldest is removed. Each step is a
rename, so that a kill in between loses no line, and what another process has open stays a file.

A line that cannot be written, e.g. to a full disk, is counted and left out: an event is never the reason why a request
or a job fails.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from tidemill.server import events
from tidemill.settings import Settings

_PIECE_BYTES = 1 << 16
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def configure_log(settings: Settings, file: Path, *, secrets: Iterable[str]) -> None:
    """Send the events of this process to its standard error, which is limited in size if it is the service's log.

    Args:
        settings: Level of events, size and number of files.
        file: The log of a service in the background.
        secrets: Texts that are masked.
    """
    log = ServiceLog.of_this_process(file, max_bytes=settings.service_log_max_bytes, files=settings.service_log_files)
    events.configure(level=settings.log_level, secrets=secrets, stream=log)


class ServiceLog:
    """A text stream to the log of this process, for one line per write.

    Args:
        file: The log. Only its process changes it; it is the file of the descriptors.
        max_bytes: Size after which the next line goes to a new file.
        files: Number of files, the current one included.
        descriptors: File descriptors that lead to the log. Default: standard output and error.
    """

    def __init__(self, file: Path, *, max_bytes: int, files: int, descriptors: tuple[int, ...] = (1, 2)) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._files = files
        self._descriptors = descriptors
        self._lock = threading.Lock()
        self._lost = 0
        self._is_torn = False

    @classmethod
    def of_this_process(cls, file: Path, *, max_bytes: int, files: int) -> "ServiceLog | TextIO":
        """Return the log if standard error is that file; otherwise, e.g. under systemd, standard error itself."""
        if not _is_open_as(file, sys.stderr.fileno()):
            return sys.stderr
        both = (1, 2) if _is_open_as(file, 1) else (2,)
        return cls(file, max_bytes=max_bytes, files=files, descriptors=both)

    def write(self, text: str) -> int:
        """Write a line; before it, begin a new file if this one is full.

        Args:
            text: The line with its end.
        """
        data = text.encode(errors="backslashreplace")
        with self._lock:
            try:
                self._write(data)
            except OSError:
                self._lost += 1
        return len(text)

    def flush(self) -> None:
        """Do nothing: each write is a system call."""

    def _write(self, data: bytes) -> None:
        fd = self._descriptors[-1]
        if self._lost:
            end = "\n" if self._is_torn else ""
            data = f"{end}{self._lost} lines are missing here: they could not be written\n".encode() + data
        # What others in this process have written counts, too.
        size = os.fstat(fd).st_size
        if size and size + len(data) > self._max_bytes:
            self._begin_file()
        while data:
            written = os.write(fd, data)
            self._is_torn, data = not data[:written].endswith(b"\n"), data[written:]
        self._lost = 0

    def _begin_file(self) -> None:
        if not _is_open_as(self._file, self._descriptors[-1]) and self._file.exists():
            # Another process has begun it, e.g. a service that starts while this one ends.
            with contextlib.suppress(OSError):
                self._go_to(os.open(self._file, _APPEND, 0o600))
            return
        # First of all, since it may fail: then nothing was renamed, and the next line tries again.
        following = self._file.with_name(f"{self._file.name}.next")
        try:
            fresh = os.open(following, _APPEND, 0o600)
        except OSError:
            return
        try:
            shift(self._file, files=self._files)
            following.replace(self._file)
        except OSError:
            following.unlink(missing_ok=True)
            os.close(fresh)
        else:
            self._go_to(fresh)

    def _go_to(self, fresh: int) -> None:
        for fd in self._descriptors:
            os.dup2(fresh, fd)
        os.close(fresh)


def shift(file: Path, *, files: int) -> None:
    """Rename a log and its predecessors: each gets the next number, and what is beyond the last one is removed.

    Args:
        file: The current log, which does not exist afterwards.
        files: Number of files to keep, the next current one included.
    """
    for number in range(files - 1, 0, -1):
        older = numbered(file, number - 1)
        if older.exists():
            older.replace(numbered(file, number))
    file.unlink(missing_ok=True)  # exists only if one file is all


def numbered(file: Path, number: int) -> Path:
    """Return the path of a log by its age.

    Args:
        file: The current log.
        number: 0 for the current one.
    """
    return file if number == 0 else file.with_name(f"{file.name}.{number}")


class ServiceLogReader:
    """Reads a log from its oldest line on, across its changes.

    Args:
        file: The current log, which need not exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open = -1
        self._rest = b""

    def lines(self) -> Iterator[str]:
        """Yield the lines that were completed since the last call, without their ends."""
        while True:
            # Asked first: what is written before the change of files is in the old one when that is read to its end.
            following = self._following()
            if self._open >= 0:
                while piece := os.read(self._open, _PIECE_BYTES):
                    *complete, self._rest = (self._rest + piece).split(b"\n")
                    yield from (line.decode(errors="replace") for line in complete)
            if following is None:
                return
            self.close()
            self._open = following

    def close(self) -> None:
        """Close the file."""
        if self._open >= 0:
            os.close(self._open)
            self._open = -1

    def _following(self) -> int | None:
        """Open the file after the current one, or the oldest; return None if the current one is the newest."""
        while True:
            ages = self._ages()
            current = _identity(os.fstat(self._open)) if self._open >= 0 else None
            at = next((age for age, identity in ages.items() if identity == current), None)
            newer = [age for age in ages if at is None or age < at]
            if not newer:
                return None
            try:
                following = os.open(numbered(self._file, max(newer)), os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # renamed meanwhile
                continue
            if _identity(os.fstat(following)) == ages[max(newer)]:
                return following
            os.close(following)

    def _ages(self) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        paths = [self._file, *self._file.parent.glob(f"{self._file.name}.*")]
        for path in paths:
            suffix = path.name.removeprefix(self._file.name).removeprefix(".")
            if suffix and not suffix.isdigit():
                continue
            try:
                found[int(suffix or 0)] = _identity(path.stat())
            except FileNotFoundError:
                continue
        return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_open_as(file: Path, fd: int) -> bool:
    try:
        return _identity(os.fstat(fd)) == _identity(file.stat())
    except OSError:
        return False
