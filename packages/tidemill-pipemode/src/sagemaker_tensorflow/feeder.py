"""Stream local files into the FIFOs of one channel, so that no reader waits forever at the end.

A feeder holds the channel's lock (`feeder_lock`) while it runs. However it ends, except by SIGKILL, it writes an
outcome for each epoch, removes its FIFOs and writes the reason of its end into the lock file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sagemaker_tensorflow.feeder_lock import FeederLock
from sagemaker_tensorflow.outcome import is_writing, write_outcome

_PIPE_SIZE_BYTES = 1 << 20
_PIECE_BYTES = 1 << 18
_OPEN_INTERVAL_S = 0.05


class FeederStopped(BaseException):
    """Raised when a signal ends the feeder; the text is the signal's name."""


@dataclass
class _Progress:
    """Bytes and files of an epoch written so far."""

    size_bytes: int = 0
    objects: int = 0
    path: Path | None = None


@dataclass(frozen=True)
class Feeder:
    """Streams the same files in every epoch of a channel."""

    files: Sequence[Path]
    """The files to stream, in this order."""
    channel: str
    """Name of the channel."""
    pipe_dir: Path
    """Directory of the FIFOs."""
    unpack: bool = False
    """Unpack files whose names end in `.gz`."""

    def feed(self, epochs: Iterable[int]) -> None:
        """Stream the epochs, each as soon as a reader opens its FIFO; return after the last.

        Raises:
            ChannelIsFedError: Another feeder serves this channel and directory.
            OSError: A file cannot be read; the outcome file reports it to the reader.
        """
        lock = FeederLock(str(self._outcome_dir / f"{self.channel}.feeder"), self._remove_stale_fifos)
        offered: set[int] = set()
        reason = "it streamed all epochs that it was started for"
        try:
            self._feed_all(iter(epochs), offered)
        except BaseException as cause:
            reason = _reason(cause)
            raise
        finally:
            for epoch in sorted(offered):
                self._withdraw(epoch, reason)
            lock.release(reason)

    @property
    def _outcome_dir(self) -> Path:
        return self.pipe_dir / ".tidemill"

    def _fifo(self, epoch: int) -> Path:
        return self.pipe_dir / f"{self.channel}_{epoch}"

    def _unfinished_fifo(self, epoch: int) -> Path:
        return self.pipe_dir / f".{self.channel}_{epoch}.new"

    def _outcome_path(self, epoch: int) -> str:
        return str(self._outcome_dir / f"{self.channel}_{epoch}.outcome")

    def _remove_stale_fifos(self) -> None:
        """Remove the FIFOs of a killed feeder: this feeder may never write their epochs, and readers would hang.

        Another feeder that starts at the same time may remove them first.
        """
        fifo = re.compile(rf"\.?{re.escape(self.channel)}_([0-9]+)(\.new)?")
        for path in self.pipe_dir.iterdir():
            match = fifo.fullmatch(path.name)
            if match and path.is_fifo() and Path(self._outcome_path(int(match[1]))).exists():
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()

    def _feed_all(self, numbers: Iterator[int], offered: set[int]) -> None:
        following = self._offer_next(numbers, offered)
        while following is not None:
            epoch = following
            following = self._offer_next(
                numbers, offered
            )  # before `epoch` is opened: `repeat()` opens the next one immediately
            self._feed_one(epoch)
            self._withdraw(epoch)
            offered.discard(epoch)

    def _offer_next(self, numbers: Iterator[int], offered: set[int]) -> int | None:
        epoch = next(numbers, None)
        if epoch is not None:
            offered.add(epoch)
            write_outcome(self._outcome_path(epoch), "writing")
            beside = self._unfinished_fifo(epoch)
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            os.mkfifo(beside)
            beside.rename(self._fifo(epoch))
        return epoch

    def _feed_one(self, epoch: int) -> None:
        fd = _open_for_writing(self._fifo(epoch))
        progress = _Progress()
        try:
            self._stream(fd, progress)
        except BrokenPipeError:
            self._finish(epoch, progress, "error", "the reader stopped before the end")
        except BaseException as cause:
            self._finish(epoch, progress, "error", _reason(cause, progress.path))
            raise
        else:
            self._finish(epoch, progress, "ok")
        finally:
            os.close(fd)

    def _stream(self, fd: int, progress: _Progress) -> None:
        for path in self.files:
            progress.path = path
            for piece_bytes in _send(path, fd, unpack=self.unpack):
                progress.size_bytes += piece_bytes
            progress.objects += 1

    def _finish(self, epoch: int, progress: _Progress, state: str, error: str = "") -> None:
        write_outcome(
            self._outcome_path(epoch), state, size_bytes=progress.size_bytes, objects=progress.objects, error=error
        )
        sys.stderr.write(
            f"pipemode.fed channel={self.channel} epoch={epoch} state={state} bytes={progress.size_bytes}"
            f" objects={progress.objects} error={error!r}\n"
        )

    def _withdraw(self, epoch: int, reason: str = "") -> None:
        """Remove the FIFO of an epoch that gets no more data; write an outcome if the epoch lacks one."""
        with contextlib.suppress(OSError):  # full disk: the outcome `writing` also marks the epoch as unfinished
            if is_writing(self._outcome_path(epoch)):
                write_outcome(self._outcome_path(epoch), "error", error=reason)
        for path in (self._fifo(epoch), self._unfinished_fifo(epoch)):
            with contextlib.suppress(OSError):
                path.unlink()


def _reason(cause: BaseException, path: Path | None = None) -> str:
    if isinstance(cause, FeederStopped):
        return f"{cause} stopped it"
    if isinstance(cause, KeyboardInterrupt):
        return "Ctrl-C stopped it"
    if isinstance(cause, (OSError, EOFError)):
        return f"{path}: {cause}" if path else str(cause)
    return f"{type(cause).__name__}: {cause}"


def _open_for_writing(fifo: Path) -> int:
    while True:
        try:
            fd = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            break
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        time.sleep(_OPEN_INTERVAL_S)  # no reader yet; the kernel offers no event for one
    os.set_blocking(fd, True)
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # optional: small pipes also work
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE_BYTES)
    return fd


def _send(path: Path, fd: int, *, unpack: bool) -> Iterable[int]:
    """Write a file into the FIFO; yield the size in bytes of each piece written."""
    if unpack and path.suffix == ".gz":
        with gzip.open(path, "rb") as source:
            for piece in iter(lambda: source.read(_PIECE_BYTES), b""):
                yield from _write(fd, memoryview(piece))
        return
    with path.open("rb") as source:
        yield from iter(lambda: os.sendfile(fd, source.fileno(), None, 1 << 30), 0)


def _write(fd: int, rest: memoryview) -> Iterable[int]:
    while rest:
        written = os.write(fd, rest)
        yield written
        rest = rest[written:]
