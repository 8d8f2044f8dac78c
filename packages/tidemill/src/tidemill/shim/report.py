"""Reports of the shim: phases in ``status.json``, the result in ``exit.json``, and lines in the job's log."""

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from tidemill._shared.trees import remove_tree
from tidemill.core.clock import Clock
from tidemill.core.segments import SegmentWriter
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.notify import notify
from tidemill.instance.status import InstanceExit, Phase

_EXIT_TRIES = 60
_PENDING_MAX_LINES = 10_000


class Reporter:
    """Writes each phase durably and notifies the service.

    Args:
        state_dir: State directory with the service's notification socket.
        clock: Provides the start times of phases.
    """

    def __init__(self, directory: InstanceDirectory, *, state_dir: Path, clock: Clock) -> None:
        self._directory = directory
        self._state_dir = state_dir
        self._clock = clock
        self._phases: list[Phase] = []

    def enter(self, status: str, message: str) -> None:
        """Enter the phase ``status``, a SageMaker SecondaryStatus.

        Args:
            message: Shown with it.
        """
        self._phases.append(Phase(status, self._clock.now_ms(), message))
        self._directory.write_phases(self._phases)
        self.wake()

    def wake(self) -> None:
        """Notify the service that the instance has a new report."""
        notify(self._state_dir, self._directory.ref)


class Log(Protocol):
    """Stores the log lines of an instance."""

    def note(self, text: str) -> None:
        """Log a line of the shim; several if ``text`` has line feeds.

        Args:
            text: Without a last LF.
        """

    def write(self, lines: Iterable[bytes]) -> None:
        """Log lines of the job, as `LineSplitter` returns them.

        Args:
            lines: Without LF.
        """


class JobLog:
    """The log stream of the instance, with lines of the job, unchanged, and lines of the shim.

    While the disk is full, up to 10,000 lines wait in memory. Beyond that the oldest lines are dropped, and their
    number is logged when there is space again. May be used from several threads, such as those of the feeder.
    """

    def __init__(self, directory: Path) -> None:
        self._writer = SegmentWriter(directory)
        self._pending: deque[bytes] = deque()
        self._lost = 0
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Log a line of the shim; several if ``text`` has line feeds, as `Log.note`."""
        self.write(text.encode(errors="replace").split(b"\n"))

    def write(self, lines: Iterable[bytes]) -> None:
        """Log lines of the job, as `LineSplitter` returns them, as `Log.write`."""
        with self._lock:
            lines = [*self._pending, *lines]
            if not lines:
                return
            note = [b"tidemill: %d lines were lost: the disk was full" % self._lost] if self._lost else []
            try:
                self._writer.write_many([*note, *lines])
            except OSError:
                self._lost += max(0, len(lines) - _PENDING_MAX_LINES)
                self._pending = deque(lines, maxlen=_PENDING_MAX_LINES)
            else:
                self._pending.clear()
                self._lost = 0

    def close(self) -> None:
        """Try to write the waiting lines, then close the stream."""
        self.write(())
        with contextlib.suppress(OSError):
            self._writer.close()


def write_exit(directory: InstanceDirectory, ended: InstanceExit) -> None:
    """Write the result. If the disk is full, the directories that only the job used are removed to make room."""
    for place in range(_EXIT_TRIES):
        try:
            directory.write_exit(ended)
        except OSError:
            write_traceback()
            _make_room(directory)
            time.sleep(min(1.0, 0.01 * 2**place))
        else:
            return


def _make_room(directory: InstanceDirectory) -> None:
    for own in (directory.tmp, directory.home, directory.views, directory.ml):
        with contextlib.suppress(OSError):
            remove_tree(own)


def write_traceback() -> None:
    """Write the traceback to ``shim.log``. Errors are ignored, because a full disk must not end the shim."""
    with contextlib.suppress(OSError):
        traceback.print_exc()
