"""The lock of a channel's feeder, held while the feeder is alive, so that no reader waits for a dead one.

The kernel releases it when the process ends for any reason. docs/reference/pipe-mode-files.md specifies its format and
the order of events.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LAST_LINE_BYTES = 1000
_TESTER_PAUSE_S = 0.01


class ChannelIsFedError(Exception):
    """Raised if another process feeds the channel."""


class FeederLock:
    """Holds the lock of one channel from construction to `release`, or to the end of the process.

    Args:
        prepare: Runs before the lock is held, but while no other feeder holds it: readers still see that there is no
            feeder. It may run several times.

    Raises:
        ChannelIsFedError: Another feeder holds the lock.
        OSError: The lock file cannot be created.
    """

    def __init__(self, path: str, prepare: Callable[[], None]) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(self._fd, path, prepare)
            os.ftruncate(self._fd, 0)  # remove the previous feeder's last line
        except BaseException:
            os.close(self._fd)
            raise

    def release(self, reason: str) -> None:
        """Release the lock and write one line, the reason why no more epochs follow, for readers.

        Args:
            reason: Any text; white space is joined to one line.
        """
        try:
            os.pwrite(self._fd, (" ".join(reason.split()) + "\n").encode(), 0)
        finally:
            os.close(self._fd)


def feeder_end(path: str) -> str | None:
    """Return why the feeder of the lock file ended; None if it is alive or the channel has no lock file.

    The test takes a shared lock for a moment, so two readers never mistake each other for a feeder.

    Returns:
        The line that the feeder wrote when it released the lock, or a default if it was killed.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        reason = os.pread(fd, _LAST_LINE_BYTES, 0)
        fcntl.flock(fd, fcntl.LOCK_UN)  # explicit: a child forked meanwhile shares the lock through its copy
    except OSError:
        return None
    finally:
        os.close(fd)
    return reason.split(b"\n")[0].decode(errors="replace") or "it was killed, or died without a word"


def _lock(fd: int, path: str, prepare: Callable[[], None]) -> None:
    while True:
        # Readers test with a shared lock too, so they take this feeder for absent until its lock is exclusive.
        if not _try_to_lock(fd, fcntl.LOCK_SH):
            raise ChannelIsFedError(
                f"another feeder is at work on this channel: it holds the lock {path}. End that feeder first, or give"
                " this one another directory (--pipe-dir) or channel (--channel)"
            )
        prepare()
        if _try_to_lock(fd, fcntl.LOCK_EX):
            return
        # A reader's test holds the lock for a moment, or another feeder starts.
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(_TESTER_PAUSE_S)


def _try_to_lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
