"""What the shim says of itself: phases to ``status.json``, lines to the job's log."""

import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from tidemill.core.clock import Clock
from tidemill.core.segments import MESSAGE_MAX_BYTES, SegmentWriter
from tidemill.executors.base import Phase
from tidemill.executors.directory import InstanceDirectory
from tidemill.executors.notify import notify

__all__ = ["JobLog", "LineSplitter", "Reporter"]

_PENDING_MAX_LINES = 10_000


class Reporter:
    """Writes each phase durably and wakes the server."""

    def __init__(self, directory: InstanceDirectory, *, state_dir: Path, clock: Clock) -> None:
        self._directory = directory
        self._state_dir = state_dir
        self._clock = clock
        self._phases: list[Phase] = []

    def enter(self, status: str, message: str) -> None:
        """Enter the phase ``status``, a SageMaker SecondaryStatus."""
        self._phases.append(Phase(status, self._clock.now_ms(), message))
        self._directory.write_phases(self._phases)
        self.wake()

    def wake(self) -> None:
        notify(self._state_dir, self._directory.ref)


class JobLog:
    """The log stream of the instance: the job's lines as they are, and the shim's own.

    While the disk is full, lines wait in memory; the oldest ones are given up when there are too many, and their
    number is logged as soon as there is space again. Feeders of Pipe channels write from threads of their own.
    """

    def __init__(self, directory: Path) -> None:
        self._writer = SegmentWriter(directory)
        self._pending: deque[bytes] = deque()
        self._lost = 0
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """A line of our own; several where ``text`` has line feeds."""
        self.write(text.encode(errors="replace").split(b"\n"))

    def write(self, lines: Iterable[bytes]) -> None:
        """Lines of the job, bytes unchanged."""
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
        self.write(())
        with contextlib.suppress(OSError):
            self._writer.close()


class LineSplitter:
    """Cuts a stream of bytes into lines. What has no line end yet is kept, up to the longest event."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) >= MESSAGE_MAX_BYTES:
            lines.append(self._rest)
            self._rest = b""
        return lines

    def end(self) -> list[bytes]:
        """The last line, where it has no line end."""
        rest, self._rest = self._rest, b""
        return [rest] if rest else []
