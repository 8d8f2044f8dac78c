"""The directory of a script's FIFOs, and the outcome files below it.

The script may rename, remove and replace the files, while the feeder writes with the service's rights. So the feeder
opens the directories before the script runs, never follows a link, and only writes to an opened file if it is a FIFO.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import weakref
from pathlib import Path

from tidemill.shim.feeder.faults import ObjectFault

_OUTCOMES = ".tidemill"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PipeDirectory:
    """The feeder's access to ``/opt/ml/input/data``.

    Args:
        path: Path of the directory outside the sandbox. No script may run yet.
    """

    def __init__(self, path: Path) -> None:
        self._locks: dict[str, int] = {}
        weakref.finalize(self, _close_all, self._locks)
        self._data_fd = os.open(path, _DIRECTORY)
        with contextlib.suppress(FileExistsError):
            os.mkdir(_OUTCOMES, 0o755, dir_fd=self._data_fd)
        self._outcomes_fd = os.open(_OUTCOMES, _DIRECTORY, dir_fd=self._data_fd)

    def lock(self, channel: str) -> None:
        """Take the lock by which readers recognize that the channel is fed, until `release` or the end of this object.

        Raises:
            OSError: The file cannot be created, or another process holds the lock.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(f"{channel}.feeder", flags, 0o644, dir_fd=self._outcomes_fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
        except OSError:
            os.close(fd)
            raise
        self._locks[channel] = fd

    def release(self, channel: str, reason: str) -> None:
        """Release the lock of a channel: no more epochs follow, for ``reason``, which readers show.

        Args:
            reason: Shown to readers.
        """
        fd = self._locks.pop(channel)
        with contextlib.suppress(OSError):  # if the disk is full, readers get no reason
            os.pwrite(fd, " ".join(reason.split()).encode(errors="replace") + b"\n", 0)
        os.close(fd)

    def offer(self, name: str) -> None:
        """Create a FIFO. Its outcome file is written first, because a reader that finds the FIFO reads that file.

        Raises:
            OSError: The files cannot be created, e.g. because the disk is full.
        """
        self.conclude(name, state="writing")
        temporary = f".{name}.{secrets.token_hex(8)}"
        os.mkfifo(temporary, 0o644, dir_fd=self._data_fd)
        os.rename(temporary, name, src_dir_fd=self._data_fd, dst_dir_fd=self._data_fd)

    def open(self, name: str) -> int | None:
        """Return the write end of a FIFO, non-blocking; None while no process has the read end open.

        Raises:
            FileNotFoundError: The script has removed the FIFO.
            ObjectFault: The script has replaced the FIFO by another kind of file.
        """
        try:
            fd = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._data_fd)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.EACCES):
                raise _replaced(name) from error
            raise
        if not stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.close(fd)
            raise _replaced(name)
        return fd

    def conclude(self, name: str, *, state: str, sent_bytes: int = 0, objects: int = 0, error: str = "") -> None:
        """Write the outcome of an epoch.

        Args:
            name: Name of the epoch's FIFO.
            state: ``writing``, ``ok`` or ``error``.
            sent_bytes: Number of bytes written to the FIFO.
            objects: Number of entries written completely.
            error: Reason of the state ``error``, else empty.

        Raises:
            OSError: The file cannot be written, e.g. because the disk is full. The previous outcome remains.
        """
        line = f"2 {state} {sent_bytes} {objects} {' '.join(error.splitlines())}".rstrip()
        temporary = f".{name}.{secrets.token_hex(8)}"
        fd = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
            dir_fd=self._outcomes_fd,
        )
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(line.encode(errors="backslashreplace") + b"\n")
            os.rename(temporary, f"{name}.outcome", src_dir_fd=self._outcomes_fd, dst_dir_fd=self._outcomes_fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._outcomes_fd)
            raise

    def withdraw(self, name: str) -> None:
        """Remove a FIFO that gets no more data, because a reader that opened it would block forever.

        Args:
            name: Name of the FIFO; others are left alone.
        """
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.stat(name, dir_fd=self._data_fd, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=self._data_fd)


def _close_all(fds: dict[str, int]) -> None:
    for fd in fds.values():
        os.close(fd)


def _replaced(name: str) -> ObjectFault:
    return ObjectFault(f"{name} is no FIFO any more: the script has replaced it. Leave the FIFOs of a channel alone")
