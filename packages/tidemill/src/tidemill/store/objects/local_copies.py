"""Copies of contents that lie in another S3, on this machine: jobs link them, so that each is fetched once.

The service adds what it uploads, the shims of jobs add what they fetch (`tidemill.shim.local_copies`). A copy is
complete as soon as it has its name. Those that were not used for longest go first; a job that has linked one keeps it.
"""

import contextlib
import hashlib
import os
import time
from pathlib import Path

__all__ = ["LocalCopies"]

_PART_AGE_S = 3600
_YOUNG_S = 60


class LocalCopies:
    """Copies below one directory.

    Args:
        root: Directory of the copies.
        max_bytes: `trim` keeps so much, besides copies that jobs use.
    """

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes

    def make_directories(self) -> None:
        """Make the directory of the copies; whoever fetches one expects it."""
        for index in range(256):
            (self._root / f"{index:02x}").mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, content_id: str) -> Path:
        """Return the file of the copy, whether or not it is there."""
        name = hashlib.sha256(content_id.encode()).hexdigest()[:40]
        return self._root / name[:2] / name

    def keep(self, content_id: str, file: Path) -> None:
        """Add a complete, durable file as a copy, by a link. Without room or links there is none."""
        target = self.path(content_id)
        with contextlib.suppress(OSError):
            target.hardlink_to(file)
            os.utime(target)

    def remove(self, content_id: str) -> None:
        """Remove the copy of content that is not there any more."""
        self.path(content_id).unlink(missing_ok=True)

    def trim(self) -> int:
        """Remove copies beyond the limit and what killed shims left half fetched; returns how many files. Blocks."""
        now_s = time.time()
        copies: list[tuple[float, int, str]] = []
        total_bytes = removed = 0
        for directory in os.scandir(self._root):
            for entry in os.scandir(directory):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(".part"):
                        if status.st_mtime < now_s - _PART_AGE_S:
                            os.unlink(entry.path)  # noqa: PTH108 - there may be many, and an entry has its path
                            removed += 1
                        continue
                    total_bytes += status.st_size
                    # Used by a job, or just fetched by one: to remove it would free nothing, or cost a second fetch.
                    if status.st_nlink == 1 and status.st_mtime < now_s - _YOUNG_S:
                        copies.append((status.st_mtime, status.st_size, entry.path))
        for _, size_bytes, path in sorted(copies):
            if total_bytes <= self._max_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - as above
                removed += 1
            total_bytes -= size_bytes
        return removed
