"""The files that a script left in a directory: the tree may have any depth, and may be replaced by a link."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from tidemill_runtime._shared.trees import walk
from tidemill_runtime.archive import MAX_NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def files_below(directory: Path) -> Iterator[Path]:
    """Yield regular files and links to them, sorted; none if ``directory`` is missing or no directory.

    Longer paths than archives may have are left out, and directories that cannot be read.

    Args:
        directory: A directory that the user can write.

    Yields:
        Paths that begin with ``directory``.
    """
    try:
        for entry in walk(directory, max_path_bytes=MAX_NAME_BYTES, on_error=lambda error: None):
            if not entry.is_directory and _is_file(entry.name, entry.directory):
                yield directory / entry.path
    except OSError:  # the directory itself cannot be read
        return


def _is_file(name: str, directory: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=directory).st_mode)
    except OSError:  # a link that leads nowhere
        return False
