"""Read and replace small files in a directory that other jobs write to at the same time."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read", "replace"]

MAX_BYTES = 65536


def read(path: Path) -> bytes:
    """Return the content of a small regular file.

    Other jobs can write to the directory, so a FIFO must not block this job, and a large file must not fill its memory.

    Raises:
        OSError: The file cannot be opened.
        ValueError: The file is not regular.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path} is not a regular file")
        return file.read(MAX_BYTES)


def replace(path: Path, text: str) -> None:
    """Write a file by an atomic rename, and create its directory if it is missing.

    Raises:
        OSError: The file cannot be written. The old file stays.
    """
    # A random name, because jobs in sandboxes may have equal process ids.
    partial = path.with_suffix(f".{secrets.token_hex(8)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
