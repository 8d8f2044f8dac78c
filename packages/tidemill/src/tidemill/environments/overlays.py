"""Overlays: the packages of a job's requirements, as a separate environment above an unchanged environment.

The runtime creates an overlay and installs packages into it, inside the sandbox, because building a package runs the
package's code. This module names the directories by key, builds each once, and writes the marker where that code cannot
change it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tidemill.environments.build_lock import Built

__all__ = ["Overlay", "Overlays"]


@dataclass(frozen=True, slots=True)
class Overlay:
    """A complete overlay.

    Attributes:
        key: Hash of the environment below and of everything that determines the installed packages.
        prefix: Directory of the overlay.
    """

    key: str
    prefix: Path


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
    ) -> Overlay:
        """Return the overlay of ``parts`` above the environment ``base_key``; build it with ``install`` if missing.

        The overlay is not removed as unused until this process ends.

        Args:
            base_key: Key of the environment below.
            parts: Digests of everything that determines the installed packages.
            install: Called with an empty directory to fill. If it raises, the directory is removed.
            log: Called with a line if another process builds the overlay.
            poll: Called several times a second while another process builds; an exception ends the wait.
        """
        key = hashlib.sha256(json.dumps([base_key, *parts]).encode()).hexdigest()[:32]
        overlay = Overlay(key, self._directory / key)
        built = Built(overlay.prefix)
        built.hold(poll=poll)
        if built.marker:
            return overlay
        with built.locked(poll=poll, waiting=lambda: log("tidemill: waiting for the same packages, being installed")):
            if not built.marker:
                built.clear()
                try:
                    overlay.prefix.mkdir(parents=True)
                    install(overlay.prefix)
                except BaseException:
                    built.clear()
                    raise
                built.complete({"key": key, "base": base_key})
        return overlay

    def remove_above(self, base_key: str) -> None:
        """Remove all overlays of the environment ``base_key``, and all incomplete overlays."""
        for marker in sorted(self._directory.glob("*.json")):
            built = Built(marker.with_suffix(""))
            record = built.marker
            if record is None or record["base"] == base_key:
                with built.locked(poll=lambda: None):
                    built.clear()
