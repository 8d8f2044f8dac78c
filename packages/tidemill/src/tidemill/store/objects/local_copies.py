"""Local copies of contents in a remote S3. Jobs link the copies, so that each content is fetched once.

The service adds the contents that it uploads; the shims of jobs add those that they fetch
(`tidemill.shim.local_copies`). A file under the final name of a copy is complete. The least recently used copies are
removed first; the links of jobs keep the content.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_PART_AGE_S = 3600
_YOUNG_S = 60


class LocalCopies:
    """Copies below one directory.

    Args:
        max_bytes: Size in bytes to which `trim` reduces the copies. Copies that jobs use are never removed.
    """

    def __init__(self, root: Path, *, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes

    def make_directories(self) -> None:
        """Create the directories of the copies, which shims expect to exist."""
        for index in range(256):
            (self._root / f"{index:02x}").mkdir(parents=True, exist_ok=True, mode=0o700)

    def path(self, content_id: str) -> Path:
        """Return the file of the copy, whether or not it exists."""
        name = hashlib.sha256(content_id.encode()).hexdigest()[:40]
        return self._root / name[:2] / name

    def keep(self, content_id: str, file: Path) -> None:
        """Add a complete, durable file as a copy, by a hard link. If linking fails, there is no copy."""
        target = self.path(content_id)
        with contextlib.suppress(OSError):
            target.hardlink_to(file)
            os.utime(target)

    def remove(self, content_id: str) -> None:
        """Remove the copy of removed or damaged content, if there is one."""
        self.path(content_id).unlink(missing_ok=True)

    def trim(self) -> int:
        """Remove copies beyond the limit, and incomplete files of killed shims. Return the number of files. Blocks."""
        now_s = time.time()
        copies: list[tuple[float, int, str]] = []
        total_bytes = removed = 0
        for path, status in self._files():
            if not path.endswith(".part"):
                total_bytes += status.st_size
                # Keep a copy that a job uses, because removing it would free no space, and one that was just fetched,
                # because it would have to be fetched again.
                if status.st_nlink == 1 and status.st_mtime < now_s - _YOUNG_S:
                    copies.append((status.st_mtime, status.st_size, path))
            elif status.st_mtime < now_s - _PART_AGE_S:
                removed += _remove(path)
        for _, size_bytes, path in sorted(copies):
            if total_bytes <= self._max_bytes:
                break
            removed += _remove(path)
            total_bytes -= size_bytes
        return removed

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        for directory in os.scandir(self._root):
            for entry in os.scandir(directory):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.path, entry.stat(follow_symlinks=False)


def _remove(path: str) -> bool:
    """Remove a file, and return whether it was there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - there may be many, and an entry has its path
        return True
    return False
