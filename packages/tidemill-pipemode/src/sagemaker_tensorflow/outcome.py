"""The outcome file of an epoch: the feeder's record of the bytes that it wrote.

docs/reference/pipe-mode-files.md specifies its format and the order of events.
"""

from __future__ import annotations

from pathlib import Path

_VERSION = 2
_UNREADABLE = "the outcome file of the feeder cannot be read"


def read_outcome(path: str) -> str | None:
    """Return the text of the file, or None if it does not exist.

    Returns:
        UTF-8 text; damaged bytes are replaced.
    """
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def outcome_problem(text: str, bytes_read: int) -> str:
    """Return why an epoch is incomplete or failed; an empty string if it is complete.

    Args:
        text: Content of the outcome file.
        bytes_read: Number of bytes of the epoch that the reader has read.
    """
    version, state, size, _, error = _fields(text)
    if _is_count(version) and int(version) > _VERSION:
        return (
            f"the outcome file of the feeder has version {version}, this reader knows version {_VERSION};"
            " update tidemill-pipemode"
        )
    if version != str(_VERSION) or not _is_count(size) or not text.endswith("\n"):
        return _UNREADABLE
    if state == "ok":
        if int(size) == bytes_read:
            return ""
        return f"the feeder wrote {size} bytes, {bytes_read} were read: bytes were lost"
    if state == "error":
        return f"the feeder failed: {error}"
    if state == "writing":
        return "the feeder died before it had written everything"
    return f"the outcome file of the feeder has an unknown state '{state}'"


def is_writing(path: str) -> bool:
    """Return whether the file's state is that the epoch is still being written.

    Args:
        path: Path of the outcome file; a missing one is not being written.
    """
    return _fields(read_outcome(path) or "")[1] == "writing"


def write_outcome(path: str, state: str, *, size_bytes: int = 0, objects: int = 0, error: str = "") -> None:
    """Write the file atomically.

    Args:
        path: Path of the outcome file; missing directories are created.
        state: ``writing``, ``ok`` or ``error``.
        size_bytes: Number of bytes written to the FIFO.
        objects: Number of objects written.
        error: Reason of a failure; line breaks become spaces.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(target.name + ".new")
    line = f"{_VERSION} {state} {size_bytes} {objects} {' '.join(error.splitlines())}".rstrip()
    beside.write_text(line + "\n", encoding="utf-8", errors="backslashreplace")
    beside.rename(target)


def _fields(text: str) -> list[str]:
    """Return version, state, bytes, objects and error; empty strings for missing fields."""
    fields = text[: -1 if text.endswith("\n") else None].split(" ", 4)
    return fields + [""] * (5 - len(fields))


def _is_count(field: str) -> bool:
    return field.isascii() and field.isdecimal()
