"""Overlays: what a job's requirements add, as a separate environment above an unchanged base.

The runtime makes an overlay and installs into it, inside the sandbox, since building a package runs its code. This
side keeps the directories apart by key, builds each once, and sets the marker outside the reach of that code.
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
    """A complete overlay."""

    key: str
    prefix: Path


class Overlays:
    """The overlays below one directory (``environments_dir/overlays``)."""

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
        """The overlay of ``parts`` above the environment ``base_key``, made by ``install`` if need be.

        Clean-ups leave it alone while this process lives.

        Args:
            base_key: Key of the environment below.
            parts: Digests of everything that decides what gets installed.
            install: Fills the empty directory that it is given; what it raises ends the build, and nothing stays.
            log: Is called with lines that tell of the build.
            poll: Is called several times a second while another process builds; what it raises ends the wait.
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
        """Remove every overlay of an environment, complete or not."""
        for marker in sorted(self._directory.glob("*.json")):
            built = Built(marker.with_suffix(""))
            record = built.marker
            if record is None or record["base"] == base_key:
                with built.locked(poll=lambda: None):
                    built.clear()
