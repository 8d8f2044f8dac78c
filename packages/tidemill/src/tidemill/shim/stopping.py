"""Requests to stop an instance, by signals to the process of its shim."""

import os
import select
import signal
from types import FrameType

from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.status import StopReason


class Stopped(Exception):  # a request, not an error
    """A stop was requested before the instance's script ran."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


class StopRequest:
    """A request to stop by signals. The descriptor becomes readable when a stop is requested."""

    def __init__(self, *signals: signal.Signals) -> None:
        self._requested = False
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        for each in signals:
            signal.signal(each, self._on_signal)

    def fileno(self) -> int:
        return self._read_fd

    @property
    def reason(self) -> StopReason | None:
        """The reason to stop; None if no stop was requested."""
        return StopReason.STOPPED if self._requested else None

    def check(self) -> None:
        """Raise if a stop was requested.

        Raises:
            Stopped: A stop was requested.
        """
        reason = self.reason
        if reason is not None:
            raise Stopped(reason)

    def wait(self, timeout_s: float) -> bool:
        """Wait at most ``timeout_s`` seconds for a request. Return whether a stop was requested.

        Args:
            timeout_s: Longest wait in seconds.
        """
        if not self._requested:
            waiting = select.poll()
            waiting.register(self._read_fd, select.POLLIN)
            waiting.poll(timeout_s * 1000)
        return self._requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self._requested:
            self._requested = True
            os.write(self._write_fd, b"T")


class TerminationSignal(StopRequest):
    """Requests to stop by SIGTERM, from the service, with the reason in ``stop.json``.

    The handler is installed before ``run.json`` is written, and the service writes ``stop.json`` before it reads
    ``run.json``. So no request is lost, in either order.
    """

    def __init__(self, directory: InstanceDirectory) -> None:
        self._directory = directory
        for ignored in (signal.SIGHUP, signal.SIGINT):
            signal.signal(ignored, signal.SIG_IGN)
        super().__init__(signal.SIGTERM)

    @property
    def reason(self) -> StopReason | None:
        """The reason to stop; None if no stop was requested."""
        return (self._directory.read_stop() or StopReason.STOPPED) if self._requested else None

    def look(self) -> None:
        """Check for a request that was written before the service could send a signal to this process."""
        if self._directory.read_stop():
            self._requested = True
