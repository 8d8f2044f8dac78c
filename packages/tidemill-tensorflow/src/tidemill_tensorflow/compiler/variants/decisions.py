"""Decisions that later jobs reuse: one small file per decision, named by a digest.

Each file is written under another name and then renamed, so that parallel jobs read either the old decision or the new
one. An unreadable file counts as no decision. If a decision cannot be written, the next job decides again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path

from tidemill_tensorflow.compiler.graphs.fingerprints import machine
from tidemill_tensorflow.compiler.variants import small_files

__all__ = ["DecisionStore"]

VARIANTS = ("plain", "xla", "fused", "at_once", "by shape")
"""What is stored for steps and for whole functions."""
MAX_FILES = 2000


class DecisionStore:
    """Store of decisions in a directory.

    Args:
        directory: Directory of the files, created at the first write.
        max_files: Number of files to keep; the oldest ones above this number are removed.
        setting: Name of the machine setting under which decisions are valid; empty for TensorFlow's defaults.
    """

    def __init__(self, directory: Path, *, max_files: int = MAX_FILES, setting: str = "") -> None:
        self._directory = directory
        self._max_files = max_files
        self._setting = setting

    def read(self, key: str) -> str | None:
        """Return the variant chosen for a step, or None if no decision is stored or its file is damaged."""
        try:
            stored = json.loads(small_files.read(self._path(key)))
        except (OSError, ValueError):
            return None
        if not isinstance(stored, dict) or stored.get("key") != self._full(key):
            return None
        if stored.get("variant") not in VARIANTS:
            return None
        return str(stored["variant"])

    def write(self, key: str, variant: str) -> None:
        """Store a decision. Ignore write errors, such as a full disk or missing permissions."""
        content = json.dumps({"key": self._full(key), "variant": variant})
        with contextlib.suppress(OSError):
            small_files.replace(self._path(key), content)
            self._remove_oldest()

    def _path(self, key: str) -> Path:
        return self._directory / f"{hashlib.sha256(self._full(key).encode()).hexdigest()}.json"

    def _full(self, key: str) -> str:
        return f"{machine()} {self._setting} {key}" if self._setting else f"{machine()} {key}"

    def _remove_oldest(self) -> None:
        files = list(self._directory.glob("*.json"))
        for path in sorted(files, key=_written)[: max(len(files) - self._max_files, 0)]:
            path.unlink(missing_ok=True)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
