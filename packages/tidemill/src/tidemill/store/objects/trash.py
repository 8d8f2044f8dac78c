"""Contents that no row names and whose removal no commit has recorded.

Such contents are left by a put that was interrupted before its commit, or by a database that was replaced with an older
copy. In the second case they are the only copy of acknowledged objects. So they are kept for a while, in a directory
named by the time of the sweep (UTC), and the start takes back those that rows name again.
"""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

from tidemill.core.clock import Clock

TRASH_KEPT_MS = 24 * 3600 * 1000

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"


class Trash:
    """Directories of content files, each named by the time at which the files were moved there.

    Args:
        root: Directory of the trash, on the file system of the contents; created at first use.
    """

    def __init__(self, root: Path, *, clock: Clock) -> None:
        self._root = root
        self._clock = clock

    def folder(self) -> Path:
        """Create and return the directory for files that are moved now."""
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        folder = self._root / f"{now:{_TIME_FORMAT}}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def files(self) -> dict[str, Path]:
        """Return all files by content id."""
        return {file.name: file for folder in self._folders() for file in folder.iterdir()}

    def remove_old(self, *, needed_since_ms: int | None = None) -> int:
        """Remove directories that are older than 24 hours. Return the number of removed files.

        Args:
            needed_since_ms: Keep everything that was moved at or after this time, in milliseconds since the epoch, e.g.
                the time of the oldest backup, whose rows may name it. Default: none.
        """
        before_ms = self._clock.now_ms() - TRASH_KEPT_MS
        if needed_since_ms is not None:
            before_ms = min(before_ms, needed_since_ms)
        old = [folder for folder in self._folders() if _time_ms(folder) < before_ms]
        files = [file for folder in old for file in folder.iterdir() if not file.is_dir()]  # directories are a user's
        for file in files:
            file.unlink()
        self.remove_empty()
        return len(files)

    def remove_empty(self) -> None:
        """Remove empty directories."""
        for folder in self._folders():
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _folders(self) -> list[Path]:
        if not self._root.is_dir():
            return []
        return [Path(entry) for entry in os.scandir(self._root) if entry.is_dir(follow_symlinks=False)]


def _time_ms(folder: Path) -> float:
    """Return the time in the name of a directory; that of its last change if a user has renamed it."""
    try:
        return datetime.strptime(folder.name, _TIME_FORMAT).replace(tzinfo=UTC).timestamp() * 1000
    except ValueError:
        return folder.stat().st_mtime * 1000
