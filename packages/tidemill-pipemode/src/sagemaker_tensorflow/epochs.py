"""The epoch counter in the state directory, advanced when the FIFO of an epoch is opened.

Counter and lock are two small files (`ReaderOptions.state_path`, `.lock_path`) that all readers of a channel share:
in one or several processes, native or Python.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
from pathlib import Path
from typing import NamedTuple

from sagemaker_tensorflow.feeder_lock import feeder_end
from sagemaker_tensorflow.options import ReaderOptions

_PIPE_SIZE_BYTES = 1 << 20  # the largest size that an unprivileged process may request
_open_files: set[int] = set()


class EpochError(Exception):
    """The counter or the FIFO cannot be used."""


class NoEpochYet(NamedTuple):
    """The reason why no epoch can be opened yet."""

    epoch: int | None
    """Number of the next epoch; None if another process holds the lock of the counter."""
    feeder_end: str | None
    """Why the feeder of the channel ended; None if it is alive, or if that is unknown."""


def try_to_open_next_epoch(options: ReaderOptions) -> tuple[int, int] | NoEpochYet:
    """Open the next epoch's FIFO without blocking, and advance the counter.

    A FIFO left behind by a dead feeder counts as absent.

    Returns:
        The epoch number and the file descriptor, or the reason why the epoch is not there yet; then the counter is
        unchanged.

    Raises:
        EpochError: The counter or the FIFO cannot be used.
    """
    try:
        lock = os.open(options.lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EpochError(f"Pipe mode: the lock file {options.lock_path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return _open_locked(options)
    except BlockingIOError:
        return NoEpochYet(None, None)
    finally:
        os.close(lock)


def end_of_feeder(options: ReaderOptions, epoch: int) -> str | None:
    """Return why the feeder that made this epoch's FIFO ended; None if it is alive or unknown.

    A FIFO without an outcome file was made by hand, or by a feeder that holds no lock.

    Args:
        epoch: Number of the epoch, from 0.

    Returns:
        The reason, as the feeder wrote it.
    """
    return feeder_end(options.feeder_lock_path) if Path(options.outcome_path(epoch)).exists() else None


def has_been_written(fd: int) -> bool:
    """Return whether a writer has opened the FIFO since this end was opened.

    Args:
        fd: Descriptor of the FIFO's read end.

    Returns:
        True also if the writer has closed it since.
    """
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))  # Linux reports a hang-up only after a writer has opened the FIFO


def about_other_reader(channel: str, *, own_fd: int) -> str:
    """Return a hint if another dataset of this process reads an epoch of the channel; else an empty string.

    Args:
        own_fd: Descriptor of this dataset's FIFO.

    Returns:
        A sentence that begins with ``. ``.
    """
    for fd in tuple(_open_files - {own_fd}):
        with contextlib.suppress(OSError):  # the other dataset may close it at the same time
            name, _, epoch = Path(os.readlink(f"/proc/self/fd/{fd}")).name.rpartition("_")
            if name == channel and epoch.isdigit():
                return (
                    f". Another dataset of this process reads epoch {epoch} of the channel: a channel is one stream,"
                    " so two datasets of it cannot be zipped. Make one PipeModeDataset and derive both parts from it"
                    " by map"
                )
    return ""


def close_epoch(fd: int) -> None:
    """Close a FIFO that `try_to_open_next_epoch` opened.

    Args:
        fd: The descriptor.
    """
    _open_files.discard(fd)
    os.close(fd)


def _open_locked(options: ReaderOptions) -> tuple[int, int] | NoEpochYet:
    epoch = _read_counter(options.state_path)
    try:
        fd = os.open(options.fifo_path(epoch), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return NoEpochYet(epoch, feeder_end(options.feeder_lock_path))
    except OSError as error:
        raise EpochError(f"Pipe mode: the FIFO cannot be opened: {error.strerror}") from error
    is_fifo = stat.S_ISFIFO(os.fstat(fd).st_mode)
    end = end_of_feeder(options, epoch) if is_fifo else None
    if end is not None and not has_been_written(fd):
        os.close(fd)
        return NoEpochYet(epoch, end)
    # A new feeder removes the FIFO of a killed one, and makes its own. A feeder that was quick has removed it too, but
    # has written it before: its data is in this end, and comes only once.
    if is_fifo and os.fstat(fd).st_nlink == 0 and not has_been_written(fd):
        os.close(fd)
        return NoEpochYet(epoch, None)
    try:
        _write_counter(options.state_path, epoch + 1)
    except OSError as error:
        os.close(fd)
        raise EpochError(
            f"Pipe mode: the epoch counter {options.state_path} cannot be written: {error.strerror}"
        ) from error
    _open_files.add(fd)
    if is_fifo and hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # optional: small pipes also work
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _PIPE_SIZE_BYTES)
    return epoch, fd


def _read_counter(path: str) -> int:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        text = "0"
        _write_counter(path, 0)
    except OSError as error:
        raise EpochError(f"Pipe mode: the epoch counter {path} cannot be read: {error.strerror}") from error
    digits = text.strip(" \t\r\n")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise EpochError(
            f"The epoch counter {path} holds '{text[:40]}', a decimal number is allowed:"
            " write the number of the next epoch into it"
        )
    return int(digits)


def _write_counter(path: str, epoch: int) -> None:
    beside = Path(path + ".new")
    beside.write_text(str(epoch), encoding="ascii")
    beside.rename(path)


def _close_all_in_child() -> None:
    # The FIFOs belong to the parent; a child's copy would keep their writers waiting after the parent has exited.
    for fd in _open_files:
        with contextlib.suppress(OSError):
            os.close(fd)
    _open_files.clear()


os.register_at_fork(after_in_child=_close_all_in_child)
