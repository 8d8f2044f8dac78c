"""The write end of one FIFO: never blocks forever, counts the written bytes, detects that the reader has left.

The descriptor is non-blocking, and every wait is a poll(2) of both the FIFO and the cancellation. Only the reader could
end a blocking write.
"""

import contextlib
import fcntl
import os
import select
from array import array
from collections.abc import Sequence

from tidemill.shim.feeder.native_sender import Outcome, Progress, native_sender

_PIPE_BYTES = 1 << 20  # the most that an unprivileged user may ask for
_GATHER_BYTES = 1 << 16
_SENDFILE_BYTES = 1 << 30


class Cancelled(Exception):
    """The job is over."""


class ReaderGone(Exception):
    """No process has the read end open any more."""


class Cancellation:
    """Ends every wait of every feeder thread immediately and permanently."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable with `cancel`."""
        return self._read_fd

    def cancel(self) -> None:
        """End all waits, including future ones."""
        os.write(self._write_fd, b"C")

    def wait(self, timeout_s: float) -> None:
        """Wait for ``timeout_s`` seconds.

        Raises:
            Cancelled: The job is over.
        """
        waiting = select.poll()
        waiting.register(self._read_fd, select.POLLIN)
        if waiting.poll(timeout_s * 1000):
            raise Cancelled

    def close(self) -> None:
        """Close the descriptors. No thread may use this object any more."""
        os.close(self._read_fd)
        os.close(self._write_fd)


class PipeWriter:
    """Writes into an open FIFO.

    Args:
        fd: Write end of the FIFO, non-blocking. Closed by `close`.

    Attributes:
        sent_bytes: Number of bytes written to the FIFO.
        entries: Number of entries of the channel that were written completely; counted by the caller of the methods.
    """

    def __init__(self, fd: int, cancellation: Cancellation) -> None:
        self._fd = fd
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        self._poll.register(cancellation.fileno(), select.POLLIN)
        self._cancel_fd = cancellation.fileno()
        self.sent_bytes = self.entries = 0
        with contextlib.suppress(OSError):  # the user's pipes may have reached the limit of pages
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def write(self, data: bytes) -> None:
        """Write ``data``. Small pieces are collected in memory until `flush`, or until they have 64 KiB.

        Raises:
            ReaderGone: The reader has left.
            Cancelled: The job is over.
        """
        if len(data) < _GATHER_BYTES:
            self._gathered.append(data)
            self._gathered_bytes += len(data)
            if self._gathered_bytes >= _GATHER_BYTES:
                self.flush()
            return
        self.flush()
        self._write(data)

    def flush(self) -> None:
        """Write the collected pieces. Raises as `write`."""
        if self._gathered:
            gathered = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered_bytes = 0
            self._write(gathered)

    def send_file(self, fd: int, offset: int, size_bytes: int) -> int:
        """Move a part of a file into the FIFO without copying it. Raises as `write`.

        Args:
            offset: Offset of the part in bytes.

        Returns:
            The number of bytes moved; less than ``size_bytes`` if the file is shorter.
        """
        self.flush()
        end = offset + size_bytes
        while offset < end:
            try:
                moved = os.sendfile(self._fd, fd, offset, min(end - offset, _SENDFILE_BYTES))
            except BlockingIOError:
                self._wait()
                continue
            except BrokenPipeError as error:
                raise ReaderGone from error
            if moved == 0:
                break
            offset += moved
            self.sent_bytes += moved
        return size_bytes - (end - offset)

    @staticmethod
    def can_send_files() -> bool:
        """Return whether the native library for `send_files` is there."""
        return native_sender() is not None

    def send_files(self, files: Sequence[tuple[str, int]], *, record_io: bool) -> tuple[int, int | None]:
        """Move many files, each a path and a size, into the FIFO. Requires `can_send_files`. Raises as `write`.

        Args:
            files: Each shorter than 512 MiB if ``record_io``.
            record_io: Whether to wrap each file into a RecordIO record.

        Returns:
            The number of files that were moved, and None; if there are more, the caller has to move the next one, which
            may be missing or damaged, without this method. Or the number, and after how many bytes the next file ended.

        Raises:
            OSError: The next file cannot be read.
        """
        send = native_sender()
        assert send is not None
        self.flush()
        paths = os.fsencode("\0".join([path for path, _ in files])) + b"\0"
        sizes, progress = array("Q", [size for _, size in files]), Progress()
        outcome = send(
            self._fd, self._cancel_fd, paths, len(paths), sizes.buffer_info()[0], len(files), record_io, progress
        )
        self.sent_bytes += progress.sent_bytes
        if outcome == Outcome.CANCELLED:
            raise Cancelled
        if outcome == Outcome.READER_GONE:
            raise ReaderGone
        if outcome == Outcome.FAILED:
            raise OSError(progress.error, os.strerror(progress.error))
        return progress.files, progress.moved if outcome == Outcome.ENDED_EARLY else None

    def close(self) -> None:
        """Close the write end, without writing the collected pieces."""
        os.close(self._fd)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                written = os.write(self._fd, rest)
            except BlockingIOError:
                self._wait()
                continue
            except BrokenPipeError as error:
                raise ReaderGone from error
            rest = rest[written:]
            self.sent_bytes += written

    def _wait(self) -> None:
        """Wait until the FIFO has room or the reader leaves; the next write detects which."""
        if any(fd == self._cancel_fd for fd, _ in self._poll.poll()):
            raise Cancelled
