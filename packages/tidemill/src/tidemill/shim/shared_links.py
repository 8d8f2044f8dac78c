"""Directories of links that jobs with the same data share: only the first job links each file.

The directories are below ``views`` of the state directory. The name of a directory is a digest of the names and
contents of its files, so jobs that start after an object was replaced or deleted use another directory. Beside each
directory are its listing and the files of `tidemill.environments.build_lock.Built`. A directory that a killed process
left incomplete has no marker, and is built again. Directories of two parts (`tidemill.shim.link_parts`) have names of
their own, because a machine without overlays needs one that is whole.

The links keep the content of deleted objects on the disk, so unused directories are removed after some minutes.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from tidemill.core.process import ProcessId
from tidemill.environments.build_lock import Built

_LISTING = ".jsonl"
_LISTING_FORM = 2
"""Number of the form of listings, which changes with `InstanceDirectory.write_shared_channel`."""


class LinkDirectories:
    """The directories of links of one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._views = state_dir / "views"

    def name_of(self, digest: str) -> str:
        """Return the name of the directory for a channel's digest.

        The name also depends on the boot of the machine, because a restart may lose links, on the path of the state
        directory, because listings contain absolute paths, and on the form of the listings.

        Args:
            digest: Digest of names and contents of the files.
        """
        parts = f"{_LISTING_FORM}\n{digest}\n{ProcessId.own().boot_id}\n{self._state_dir}"
        return hashlib.sha256(parts.encode()).hexdigest()[:40]

    def take_listing(self, name: str, target: Path) -> bool:
        """Link the listing of a directory to ``target``, which must not exist; return False without a listing.

        Args:
            target: Path of the new link.
        """
        try:
            os.link(self._listing(name), target)
        except OSError:
            return False
        os.utime(target)  # a use of the listing, which is kept for the next job
        return True

    def keep_listing(self, name: str, listing: Path) -> None:
        """Keep a complete listing for the next job with the same data.

        Args:
            name: Name of the directory.
            listing: The complete file.
        """
        with contextlib.suppress(OSError):  # another job was faster, or the file system has no links
            self._views.mkdir(mode=0o700, exist_ok=True)
            os.link(listing, self._listing(name))

    def filled(
        self, name: str, fill: Callable[[Path], None], *, in_parts: bool = False, poll: Callable[[], None]
    ) -> Built:
        """Return a complete directory, which is not removed until this process ends.

        Args:
            name: A result of `name_of`.
            in_parts: Whether ``fill`` creates parts. Default: false.
            fill: Called with an empty directory to fill, if the directory does not exist yet. If it raises, the
                directory is removed.
            poll: Called several times a second while another process fills the directory; an exception ends the wait.

        Raises:
            OSError: The directory cannot be written.
        """
        built = Built(self._views / (f"{name}-parts" if in_parts else name))
        built.hold(poll=poll)
        if built.marker:
            return built
        with built.locked(poll=poll):
            if not built.marker:
                built.clear()
                try:
                    built.directory.mkdir()
                    fill(built.directory)
                except BaseException:
                    built.clear()
                    raise
                built.complete({})
        return built

    def remove_unused(self, *, idle_s: float) -> int:
        """Remove directories that no process holds or has used for ``idle_s`` seconds. Return their number.

        Args:
            idle_s: Seconds since the last use.
        """
        before_s = time.time() - idle_s
        for listing in self._views.glob(f"*{_LISTING}"):
            if listing.stat().st_mtime <= before_s:
                listing.unlink()
        names = {path.name.partition(".")[0] for path in self._views.glob("*") if path.suffix != _LISTING}
        return sum(self._remove(name, before_s) for name in names)

    def _remove(self, name: str, before_s: float) -> bool:
        built = Built(self._views / name)
        if built.is_held or (built.marker and (built.last_used_s or 0) > before_s):
            return False
        with built.locked(poll=lambda: None):
            removed = built.clear_unless_held()
            if removed:
                (self._views / f"{name}.lock").unlink(missing_ok=True)
        return removed

    def _listing(self, name: str) -> Path:
        return self._views / f"{name}{_LISTING}"
