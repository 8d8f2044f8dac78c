"""Overlays: packages that several jobs require, as a separate environment above an unchanged environment.

The runtime creates an overlay and installs packages into it, inside a sandbox of its own, because building a package
runs the package's code. This module names the directories by key, builds each once, and writes the marker, with a
digest of the content, where that code cannot change it.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill._shared.trees import walk
from tidemill.environments.build_lock import Built
from tidemill.environments.changes import check_unchanged, state_of
from tidemill.environments.uv_command import BuildWatch


@dataclass(frozen=True, slots=True)
class RequirementsOverlay:
    """A complete overlay.

    Attributes:
        key: Hash of the environment below and of everything that determines the installed packages.
        sha256: Digest of the names and contents of all its files, hexadecimal.
    """

    key: str
    prefix: Path
    sha256: str


class Overlays:
    """The overlays below one directory.

    Args:
        directory: Directory of the overlays, ``environments_dir/overlays``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def ensure(
        self,
        base_key: str,
        parts: tuple[str, ...],
        *,
        install: Callable[[Path], None],
        log: Callable[[str], None],
        poll: Callable[[], None],
        writable: bool = False,
    ) -> RequirementsOverlay:
        """Return the overlay of ``parts`` above the environment ``base_key``; build it with ``install`` if missing.

        The overlay is not removed as unused until this process ends.

        Args:
            base_key: Key of the environment below.
            parts: Digests of everything that determines the installed packages.
            install: Called with an empty directory to fill. If it raises, the directory is removed.
            log: Called with a line if another process builds the overlay.
            poll: Called several times a second while another process builds; an exception ends the wait.
            writable: Whether a job of this process can write to the overlay; see `check_unchanged`. Default: false.
        """
        key = hashlib.sha256(json.dumps([base_key, *parts]).encode()).hexdigest()[:32]
        built = Built(self._directory / key)
        built.hold(poll=poll)
        check_unchanged(built, linked=False, writable=writable, watch=BuildWatch(log, poll))
        if marker := built.marker:
            return RequirementsOverlay(key, built.directory, marker["sha256"])
        with built.locked(poll=poll, waiting=lambda: log("tidemill: waiting for the same packages, being installed")):
            if marker := built.marker:
                return RequirementsOverlay(key, built.directory, marker["sha256"])
            built.clear()
            try:
                built.directory.mkdir(parents=True)
                install(built.directory)
                sha256 = _digest(built.directory)
            except BaseException:
                built.clear()
                raise
            state = state_of(built.directory, linked=False)
            built.complete({"key": key, "base": base_key, "sha256": sha256, "state": state})
            return RequirementsOverlay(key, built.directory, sha256)

    def remove_above(self, base_key: str) -> None:
        """Remove all overlays of the environment ``base_key``, and all incomplete overlays."""
        for marker in sorted(self._directory.glob("*.json")):
            built = Built(marker.with_suffix(""))
            record = built.marker
            if record is None or record["base"] == base_key:
                with built.locked(poll=lambda: None):
                    built.clear()


def _digest(directory: Path) -> str:
    """Return a digest of the names and contents of all files and links below a directory."""
    digest = hashlib.sha256()
    for entry in walk(directory):
        if entry.is_directory:
            continue
        if stat.S_ISLNK(entry.status().st_mode):
            content = hashlib.sha256(os.fsencode(os.readlink(entry.name, dir_fd=entry.directory))).digest()
        else:
            fd = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=entry.directory)
            with os.fdopen(fd, "rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        name = os.fsencode(entry.path)
        digest.update(b"%d %s %s" % (len(name), name, content))
    return digest.hexdigest()
