"""Built things on disk (environments, overlays): made once under a file lock, complete once their marker stands.

Virtual environments hold absolute paths, so they are built where they stay. What has no marker is a build that was cut
short, and is removed by whoever builds next.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tidemill.core.files import read_json, write_json

__all__ = ["Built", "remove_tree"]

_RETRY_S = 0.1


class Built:
    """One directory that is built once. ``NAME.lock`` and the marker ``NAME.json`` stand beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._marker = directory.with_name(directory.name + ".json")
        self._lock = directory.with_name(directory.name + ".lock")

    @property
    def marker(self) -> dict[str, Any] | None:
        """What was written when the build was complete; None where it is not."""
        return read_json(self._marker) if self.directory.is_dir() else None

    @contextlib.contextmanager
    def locked(self, *, poll: Callable[[], None], waiting: Callable[[], None] = lambda: None) -> Iterator[int]:
        """Hold the build lock. Yields its file descriptor, which builders inherit: an orphan still excludes others.

        Args:
            poll: Is called while another process holds the lock; what it raises ends the wait.
            waiting: Is called once when the lock is held by another process.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        told = False
        while (fd := self._try_lock()) is None:
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
        """Remove the marker, then the directory. The lock must be held."""
        self._marker.unlink(missing_ok=True)
        if self.directory.is_symlink() or self.directory.exists():
            remove_tree(self.directory)

    def complete(self, record: dict[str, Any]) -> None:
        """Say that the build is complete. The lock must be held."""
        write_json(self._marker, {"version": 1, **record})

    def _try_lock(self) -> int | None:
        fd = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A clean-up may have removed the file in between: a lock on a nameless file excludes nobody.
            if os.path.samestat(os.fstat(fd), self._lock.stat()):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        return None


def remove_tree(path: Path) -> None:
    """Remove a directory that a job filled: follows no link, and opens directories whose owner closed them.

    Raises:
        OSError: Something in it cannot be removed.
    """

    def reopen(function: Callable[..., Any], name: str, failure: tuple[Any, ...]) -> None:
        if isinstance(failure[1], FileNotFoundError):
            return
        if not isinstance(failure[1], PermissionError):
            raise failure[1]
        for each in (Path(name).parent, Path(name)):
            if each.is_dir() and not each.is_symlink() and each.is_relative_to(path):
                each.chmod(stat.S_IRWXU)
        if function in (os.unlink, os.rmdir):
            function(name)
        else:
            shutil.rmtree(name)

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=reopen)
    else:
        path.unlink(missing_ok=True)
