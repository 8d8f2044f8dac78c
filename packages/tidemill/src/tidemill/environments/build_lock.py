"""Directories that are built once under a file lock (environments, overlays), and complete once their marker exists.

Virtual environments contain absolute paths, so they are built at their final path. A directory without a marker is an
interrupted build, and the next build removes it. A process that uses a directory holds a second lock until the process
ends; the modification time of that lock's file is the time of the last use.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from tidemill._shared.trees import remove_tree
from tidemill.core.files import read_json, write_json

_RETRY_S = 0.1
_CHANGED = ".changed-"


class Built:
    """One directory that is built once. Beside it are the marker ``NAME.json``, ``NAME.lock`` and ``NAME.used``.

    Args:
        directory: Path of the directory; need not exist.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._marker = directory.with_name(directory.name + ".json")
        self._lock = directory.with_name(directory.name + ".lock")
        self._used = directory.with_name(directory.name + ".used")
        self._progress = directory.with_name(directory.name + ".progress")

    @property
    def marker(self) -> dict[str, Any] | None:
        """Content of the marker, which is written when the build is complete; None before."""
        return read_json(self._marker) if self.directory.is_dir() else None

    @property
    def is_held(self) -> bool:
        """Whether a running process holds the directory; see `hold`."""
        try:
            fd = os.open(self._used, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    @property
    def last_used_s(self) -> float | None:
        """Time of the last use or of completion, in seconds since the epoch; None if it is unknown."""
        with contextlib.suppress(FileNotFoundError):
            return max(self._used.stat().st_mtime, self._marker.stat().st_mtime)
        if os.statvfs(self.directory).f_flag & os.ST_NOATIME:
            return None
        # The directory was built by an earlier version, which had no second lock. But each use has read the marker,
        # and the kernel records the time of access to the day.
        status = self._marker.stat()
        return max(status.st_atime, status.st_mtime)

    def hold(self, *, poll: Callable[[], None] = lambda: None) -> None:
        """Prevent removal of the directory until this process ends, and record the use.

        Args:
            poll: Called several times a second while another process removes the directory; an exception ends the wait.
        """
        if self._used in _held:
            return
        self._used.parent.mkdir(parents=True, exist_ok=True)
        while (fd := try_lock(self._used, fcntl.LOCK_SH)) is None:
            poll()
            time.sleep(_RETRY_S)
        os.utime(fd)
        _held[self._used] = fd

    def note_use(self) -> None:
        """Record a use now. This process must hold the directory."""
        os.utime(_held[self._used])

    def clear_unless_held(self) -> bool:
        """Remove the directory unless a process holds it. Return whether it was removed. The caller has the lock."""
        fd = try_lock(self._used, fcntl.LOCK_EX)
        if fd is None:
            return False
        try:
            self.clear()
            self._used.unlink()
        finally:
            os.close(fd)
        return True

    @contextlib.contextmanager
    def locked(self, *, poll: Callable[[], None], waiting: Callable[[], None] = lambda: None) -> Generator[int]:
        """Take the build lock until the block ends. Yield its file descriptor.

        Builder processes inherit the descriptor, so that the lock stays taken if they outlive this process.

        Args:
            poll: Called several times a second while another process has the lock; an exception ends the wait.
            waiting: Called once if another process has the lock.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        told = False
        while (fd := try_lock(self._lock, fcntl.LOCK_EX)) is None:
            if not told:
                waiting()
                told = True
            poll()
            time.sleep(_RETRY_S)
        try:
            yield fd
        finally:
            os.close(fd)

    def clear(self) -> None:
        """Remove the marker, then the directory. The caller has the build lock."""
        self._marker.unlink(missing_ok=True)
        self._progress.unlink(missing_ok=True)
        if self.directory.is_symlink() or self.directory.exists():
            remove_tree(self.directory)

    def set_aside(self) -> Path:
        """Remove the marker, and give the directory another name, which is returned. The caller has the build lock.

        Processes that use the directory keep it, except for what they open by path later.
        """
        self._marker.unlink()
        aside = self.directory.with_name(f"{self.directory.name}{_CHANGED}{time.time_ns()}")
        self.directory.rename(aside)
        return aside

    @property
    def was_set_aside(self) -> bool:
        """Whether there is a directory that `set_aside` has renamed."""
        return any(self.directory.parent.glob(f"{self.directory.name}{_CHANGED}*"))

    def share_progress(self, state: str) -> None:
        """Publish the build's progress to processes that wait for the build. The caller has the build lock.

        Args:
            state: One line of text.
        """
        temporary = self._progress.with_name(f"{self._progress.name}.tmp")
        temporary.write_text(state)
        temporary.replace(self._progress)

    @property
    def shared_progress(self) -> str:
        """Last published progress of the build; empty if there is none."""
        try:
            return self._progress.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def complete(self, record: dict[str, Any]) -> None:
        """Mark the build as complete. The caller has the build lock.

        Args:
            record: Content of the marker.
        """
        self._progress.unlink(missing_ok=True)
        write_json(self._marker, {"version": 1, **record})


_held: dict[Path, int] = {}
"""File descriptors of the held locks. The kernel closes them when the process ends, however it ends."""


def try_lock(path: Path, kind: int) -> int | None:
    """Lock a file, created if missing, and return its descriptor; None if another process has it locked.

    Args:
        kind: ``LOCK_EX`` or ``LOCK_SH``.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        # A clean-up may have removed the file in between: a lock on an unlinked file protects nothing.
        if os.path.samestat(os.fstat(fd), path.stat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None
