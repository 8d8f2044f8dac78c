"""The directory in which a script finds its FIFOs, and the outcome files beside them.

The script may rename, remove and replace whatever lies there, while the feeder writes with the service's rights. So
directories are held by descriptors from before the script runs, no link is ever followed, and what was opened is
written to only if it is a FIFO.
"""

import contextlib
import errno
import json
import os
import secrets
import stat
from pathlib import Path

from tidemill.executors.shim.feeder.faults import ObjectFault

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
        self._data_fd = os.open(path, _DIRECTORY)
        with contextlib.suppress(FileExistsError):
            os.mkdir(_OUTCOMES, 0o755, dir_fd=self._data_fd)
        self._outcomes_fd = os.open(_OUTCOMES, _DIRECTORY, dir_fd=self._data_fd)

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
        """The write end of a FIFO, non-blocking; None while nobody has the read end open.

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
            OSError: The disk is full, or the like; the outcome is what it was.
        """
        outcome = {"version": 1, "state": state, "bytes": sent_bytes, "objects": objects, "error": error}
        temporary = f".{name}.{secrets.token_hex(8)}"
        fd = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
            dir_fd=self._outcomes_fd,
        )
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(json.dumps(outcome).encode())
            os.rename(temporary, f"{name}.json", src_dir_fd=self._outcomes_fd, dst_dir_fd=self._outcomes_fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._outcomes_fd)
            raise

    def withdraw(self, name: str) -> None:
        """Remove a FIFO that nobody will fill again: opening it once more would wait for ever."""
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(os.stat(name, dir_fd=self._data_fd, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=self._data_fd)


def _replaced(name: str) -> ObjectFault:
    return ObjectFault(f"{name} is no FIFO any more: the script has replaced it. Leave the FIFOs of a channel alone")
