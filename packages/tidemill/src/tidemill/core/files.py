"""Write small files atomically and durably: after any crash a reader sees the whole old or the whole new content."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from tidemill.core import faults


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace the content of ``path`` so that a crash at any moment leaves either the old or the new content.

    Raises:
        OSError: The directory is missing, full or not writable. The old file is then unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            faults.point(f"files.fsync.{path.name}")
            os.fsync(file.fileno())
        faults.point(f"files.rename.{path.name}")
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def remove_unfinished(directory: Path) -> None:
    """Remove temporary files of killed writers in a directory. No process may be writing there.

    Args:
        directory: The directory; others below it are not searched.
    """
    for temporary in directory.glob(".*.tmp"):
        temporary.unlink(missing_ok=True)


def make_directory(path: Path, *, mode: int = 0o777) -> None:
    """Create a directory and those above it durably, unless they exist: a sync of a file does not keep their names.

    Args:
        mode: Mode of the new directories.
    """
    wanted = [path]
    while not wanted[-1].parent.exists():
        wanted.append(wanted[-1].parent)
    for directory in reversed(wanted):
        if not directory.is_dir():
            directory.mkdir(mode=mode, exist_ok=True)
            sync_directory(directory.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: If it cannot be synced.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as JSON, durably.

    Args:
        path: The file, which is replaced.
        value: A value of JSON; keys are sorted.
    """
    write_durably(path, json.dumps(value, ensure_ascii=False, sort_keys=True).encode())


def read_json(path: Path) -> Any | None:
    """Return the JSON value in ``path``, or None if the file does not exist.

    Raises:
        ValueError: The file is not JSON, or its values are nested too deeply to be read.
    """
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except RecursionError as error:
        raise ValueError(f"{path} has values that are nested too deeply") from error
