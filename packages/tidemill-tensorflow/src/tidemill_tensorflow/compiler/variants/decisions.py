"""Decisions that later jobs reuse: one small file per decision, named by a digest.

Each file is written under another name and then renamed, so that parallel jobs read either the old decision or the new
one. An unreadable file counts as no decision. If a decision cannot be written, the next job decides again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from pathlib import Path

from tidemill_tensorflow.compiler.graphs.fingerprints import machine

VARIANTS = ("plain", "xla", "fused", "at_once", "by shape")
"""What is stored for steps and for whole functions."""
MAX_FILES = 2000
MAX_BYTES = 65536


class DecisionStore:
    """Store of decisions in a directory.

    Args:
        directory: Directory of the files, created at the first write.
        max_files: Number of files to keep; the oldest ones above this number are removed.
    """

    def __init__(self, directory: Path, *, max_files: int = MAX_FILES) -> None:
        self._directory = directory
        self._max_files = max_files

    def read(self, key: str) -> str | None:
        """Return the variant chosen for a step, or None if no decision is stored or its file is damaged."""
        try:
            stored = json.loads(_read(self._path(key)))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(stored, dict) or stored.get("key") != _full(key):
            return None
        if stored.get("variant") not in VARIANTS:
            return None
        return str(stored["variant"])

    def write(self, key: str, variant: str) -> None:
        """Store a decision. Ignore write errors, such as a full disk or missing permissions."""
        content = json.dumps({"key": _full(key), "variant": variant})
        with contextlib.suppress(OSError):
            _replace(self._path(key), content)
            self._remove_oldest()

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(_full(key).encode()).hexdigest()}.json"

    def _remove_oldest(self) -> None:
        files = list(self._directory.glob("*.json"))
        for path in sorted(files, key=_written)[: max(len(files) - self._max_files, 0)]:
            path.unlink(missing_ok=True)


def _full(key: str) -> str:
    return f"{machine()} {key}"


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _read(path: Path) -> bytes:
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


def _replace(path: Path, text: str) -> None:
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
