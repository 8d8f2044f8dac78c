"""Reserved space (*ballast*): a file that is removed when the disk is full, so that deletes and stops still commit."""

import contextlib
import os
from pathlib import Path

from tidemill.core.clock import Clock, SystemClock

__all__ = ["RESERVED_BYTES", "ReservedSpace"]

RESERVED_BYTES = 64 * 1024 * 1024
"""Several times the database's write-ahead log (16 MiB), whose checkpoint needs the released space."""
SHARE = 20
"""On a small disk, a twentieth of the free space is reserved: the database and its log are small there, too."""
LEAST_BYTES = 1024 * 1024
"""Less would not be enough for the deletes and stops while the disk is full."""
RETRY_INTERVAL_S = 1.0


class ReservedSpace:
    """One file of allocated blocks.

    Args:
        path: The file, on the disk whose space it reserves.
        size_bytes: Its size. None: 5 % of the free space when it is first reserved, from 1 to 64 MiB.
        clock: Times the attempts to reserve the space again.
    """

    def __init__(self, path: Path, *, size_bytes: int | None = None, clock: Clock | None = None) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._tried_s: float | None = None
        present_bytes = path.stat().st_size if path.exists() else 0
        self._is_share = size_bytes is None
        self.size_bytes = max(LEAST_BYTES, present_bytes) if size_bytes is None else size_bytes
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
            self.size_bytes = max(self.size_bytes, min(RESERVED_BYTES, free_bytes // SHARE))
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
