"""Find environments and overlays that are no longer needed, for `tidemill gc`.

Several versions of tidemill may share the directory. Environments of this version's locks are kept. Whether another
installed version needs one of the others is unknown, so those are kept if they were used recently. An environment that
a running process uses is always kept.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemill.environments.build_lock import Built
from tidemill.environments.builder import Environments, shared_layers


def unused_environments(directory: Path, environments: Environments, *, before_s: float) -> Iterator[Path]:
    """Yield complete environments that belong to no lock of this version and were not used lately.

    A shared layer is yielded after the environments above it, and only if all of these are yielded.

    Args:
        before_s: Time in seconds since the epoch; environments that were used later are kept.
    """
    current = {path for each in environments.current() for path in (each.prefix, *each.shared_layers)}
    records = {path: record for path in _subdirectories(directory) if (record := _marker(path)) is not None}
    needed = set(current)
    for path, record in records.items():
        if "lock_sha256" not in record:  # a shared layer
            continue
        if path not in current and _is_unused(path, before_s=before_s):
            yield path
        else:
            needed.update(shared_layers(path, record))
    for path, record in records.items():
        if "lock_sha256" not in record and path not in needed and _is_unused(path, before_s=before_s):
            yield path


def unused_overlays(directory: Path, *, before_s: float) -> Iterator[Path]:
    """Yield complete overlays whose last use was before the time ``before_s``, in seconds since the epoch.

    Args:
        before_s: Upper bound, exclusive.
    """
    for path in _subdirectories(directory):
        if _marker(path) is not None and _is_unused(path, before_s=before_s):
            yield path


def _is_unused(path: Path, *, before_s: float) -> bool:
    built = Built(path)
    used_s = built.last_used_s
    return used_s is not None and used_s < before_s and not built.is_held


def _marker(path: Path) -> dict[str, Any] | None:
    """Return the marker of a complete directory, else None. Do not change its access time, which may record a use."""
    try:
        fd = os.open(path.with_name(f"{path.name}.json"), os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOATIME", 0))
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        return json.load(file)


def _subdirectories(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.is_dir() and not path.is_symlink())
