"""The outcome file of an epoch: what the feeder says about the bytes that it wrote.

Its form and the order of events stand in docs/reference/pipe-mode-files.md.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["is_writing", "judge_outcome", "read_outcome", "write_outcome"]


def read_outcome(path: str) -> str | None:
    """The text of the file, or None where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def judge_outcome(text: str, bytes_read: int) -> str:
    """Why an epoch of which `bytes_read` bytes were read did not end well, or an empty string if it did."""
    try:
        outcome = json.loads(text)
        version, state, size = outcome["version"], outcome["state"], outcome["bytes"]
        error = outcome.get("error", "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "the outcome file of the feeder cannot be read"
    if not _is_count(version) or version < 1 or not _is_count(size) or not isinstance(state, str):
        return "the outcome file of the feeder cannot be read"
    if version > 1:
        return (
            f"the outcome file of the feeder has version {version}, this reader knows version 1;"
            " update tidemill-pipemode"
        )
    if state == "ok":
        if size == bytes_read:
            return ""
        return f"the feeder wrote {size} bytes, {bytes_read} were read: bytes were lost"
    if state == "error":
        return f"the feeder failed: {error}"
    if state == "writing":
        return "the feeder died before it had written everything"
    return f"the outcome file of the feeder has an unknown state '{state}'"


def is_writing(path: str) -> bool:
    """Whether the file says that the epoch is still to be written."""
    try:
        return json.loads(read_outcome(path) or "{}").get("state") == "writing"
    except (ValueError, AttributeError):
        return False


def write_outcome(path: str, state: str, *, size_bytes: int = 0, objects: int = 0, error: str = "") -> None:
    """Write the file, whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(target.name + ".new")
    outcome = {"version": 1, "state": state, "bytes": size_bytes, "objects": objects, "error": error}
    beside.write_text(json.dumps(outcome) + "\n", encoding="utf-8")
    beside.rename(target)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
