"""Being asked to stop: SIGTERM, with the reason in ``stop.json``."""

import os
import select
import signal
from types import FrameType

from tidemill.executors.base import StopReason
from tidemill.executors.directory import InstanceDirectory

__all__ = ["StopSignal", "Stopped"]


class Stopped(Exception):  # a request, not an error
    """The instance was asked to stop before its script ran."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class StopSignal:
    """Whether a stop was asked for. Its descriptor becomes readable when it is.

    The handler stands before ``run.json`` does, and the server writes ``stop.json`` before it looks for ``run.json``:
    whichever comes first, no request is lost.
    """

    def __init__(self, directory: InstanceDirectory) -> None:
        self._directory = directory
        self._requested = False
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_signal)

    def fileno(self) -> int:
        return self._read_fd

    @property
    def reason(self) -> StopReason | None:
        """Why to stop; None while nobody asked."""
        return (self._directory.read_stop() or StopReason.STOPPED) if self._requested else None

    def look(self) -> None:
        """Take in a request that was written before there was anybody to send a signal to."""
        if self._directory.read_stop():
            self._requested = True

    def check(self) -> None:
        """Raise where a stop was asked for.

        Raises:
            Stopped: It was.
        """
        reason = self.reason
        if reason is not None:
            raise Stopped(reason)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a request; whether there is one."""
        if not self._requested:
            waiting = select.poll()
            waiting.register(self._read_fd, select.POLLIN)
            waiting.poll(timeout_s * 1000)
        return self._requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._requested:
            self._requested = True
            os.write(self._write_fd, b"T")
