"""Room kept for bad days: a file that is given up when the disk is full, so that deletes and stops still commit."""

import contextlib
import os
from pathlib import Path

from tidemill.core.clock import Clock, SystemClock

__all__ = ["BALLAST_BYTES", "Ballast"]

BALLAST_BYTES = 64 * 1024 * 1024
"""Several times the database's write-ahead log (16 MiB), which is brought home in this room."""
RETRY_INTERVAL_S = 1.0


class Ballast:
    """One file of reserved blocks.

    Args:
        path: Where it lies: on the disk whose room it keeps.
        size_bytes: How much it keeps.
        clock: Times the attempts to lay it again.
    """

    def __init__(self, path: Path, *, size_bytes: int = BALLAST_BYTES, clock: Clock | None = None) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._clock = clock or SystemClock()
        self._tried_s: float | None = None
        self._held = path.exists() and path.stat().st_size >= size_bytes

    @property
    def held(self) -> bool:
        """Whether the room is kept. False means that the disk is, or was a moment ago, full."""
        return self._held

    @property
    def has_room(self) -> bool:
        """Whether something new may be stored: the room is kept, and a quarter as much is free besides.

        A database that grows into pages it has already notices a full disk late, and what it took in the meantime
        could not be carried out.
        """
        return self._held and self._free_bytes() >= self.size_bytes // 4

    def lay(self) -> bool:
        """Reserve the room if there is twice as much free; returns whether it is held."""
        if self._held:
            return True
        self._tried_s = self._clock.monotonic_s()
        if self._free_bytes() < 2 * self.size_bytes:
            return False
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, self.size_bytes)
            os.fsync(fd)
        except OSError:  # somebody else took the room meanwhile
            self._remove()
            return False
        finally:
            os.close(fd)
        self._held = True
        return True

    def lay_if_due(self) -> None:
        """Try to `lay` it again, at most every second."""
        if self._held:
            return
        if self._tried_s is None or self._clock.monotonic_s() - self._tried_s >= RETRY_INTERVAL_S:
            self.lay()

    def release(self) -> bool:
        """Give the room up; returns whether there was any."""
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
