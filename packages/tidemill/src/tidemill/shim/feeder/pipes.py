"""The directory in which a script finds its FIFOs, and the outcome files beside them.

The script may rename, remove and replace the files, while the feeder writes with the service's rights. So
directories are held by descriptors from before the script runs, no link is ever followed, and an opened file is written
to only if it is a FIFO.
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

__all__ = ["PipeDirectory"]

_OUTCOMES = ".tidemill"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class PipeDirectory:
    """``/opt/ml/input/data`` as the feeder sees it.

    Args:
        path: The directory, outside the sandbox; no script runs yet.
    """

    def __init__(self, path: Path) -> None:
        self._locks: dict[str, int] = {}
        weakref.finalize(self, _close_all, self._locks)
        self._data_fd = os.open(path, _DIRECTORY)
        with contextlib.suppress(FileExistsError):
            os.mkdir(_OUTCOMES, 0o755, dir_fd=self._data_fd)
        self._outcomes_fd = os.open(_OUTCOMES, _DIRECTORY, dir_fd=self._data_fd)

    def lock(self, channel: str) -> None:
        """Hold the lock that tells readers that the channel is fed, until `release` or the end of this directory.

        Raises:
            OSError: The file cannot be made, or another process holds the lock.
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
        """Inform readers that no more epochs of the channel follow, and why."""
        fd = self._locks.pop(channel)
        with contextlib.suppress(OSError):  # a full disk: readers are told without the reason
            os.pwrite(fd, " ".join(reason.split()).encode(errors="replace") + b"\n", 0)
        os.close(fd)

    def offer(self, name: str) -> None:
        """Make a FIFO, its outcome first: a reader that finds the FIFO must find the file.

        Raises:
            OSError: The disk is full, or the like.
        """
        self.conclude(name, state="writing")
        temporary = f".{name}.{secrets.token_hex(8)}"
        os.mkfifo(temporary, 0o644, dir_fd=self._data_fd)
        os.rename(temporary, name, src_dir_fd=self._data_fd, dst_dir_fd=self._data_fd)

    def open(self, name: str) -> int | None:
        """Return the write end of a FIFO, non-blocking; None while no process has the read end open.

        Raises:
            FileNotFoundError: The script has removed it.
            ObjectFault: The script has put something else in its place.
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

        Raises:
            OSError: For example, the disk is full; the outcome is unchanged.
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
        """Remove a FIFO that has no more data: opening it once more would block forever."""
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.stat(name, dir_fd=self._data_fd, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=self._data_fd)


def _close_all(fds: dict[str, int]) -> None:
    for fd in fds.values():
        os.close(fd)


def _replaced(name: str) -> ObjectFault:
    return ObjectFault(f"{name} is no FIFO any more: the script has replaced it. Leave the FIFOs of a channel alone")
