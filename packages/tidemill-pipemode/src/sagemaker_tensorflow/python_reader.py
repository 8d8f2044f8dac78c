"""The Python reader: the fallback for machines without the native reader, and the reference in its tests.

It yields chunks of the records that have arrived (about a megabyte at most), and an empty chunk after a tenth of a
second without data, so that TensorFlow can end a cancelled iterator.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import NamedTuple

from sagemaker_tensorflow import waits
from sagemaker_tensorflow.epochs import (
    EpochError,
    NoEpochYet,
    about_other_reader,
    close_epoch,
    end_of_feeder,
    has_been_written,
    try_to_open_next_epoch,
)
from sagemaker_tensorflow.framing import FramingError, make_framer
from sagemaker_tensorflow.options import ReaderOptions
from sagemaker_tensorflow.outcome import outcome_problem, read_outcome

_PIECE_BYTES = 1 << 20
_PATIENCE_S = 0.1
_FIRST_NOTICE_S = 10.0
_NOTICE_INTERVAL_S = 60.0
_RESTART_S = 5.0  # time within which a feeder can be restarted without an error in the script


class ReadError(Exception):
    """Raised if an epoch ends with an error; the text is for the user."""


class Chunk(NamedTuple):
    """Result of one read."""

    records: list[bytes]
    """The records that have arrived; empty if none arrived within the wait interval."""
    interrupted: bool = False
    """Whether a signal arrived while no data did. The reader can continue."""


def read_epoch(options: ReaderOptions) -> Generator[Chunk, None, None]:
    """Open the next epoch and yield its records in chunks, some of them empty.

    Raises:
        ReadError: The stream is invalid or ended early; the records before the error have been yielded.
    """
    reader = _EpochReader(options)
    try:
        yield from reader.chunks()
    finally:
        reader.close()


class _Wait:
    """A period without data."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self.feeder_ended_s: float | None = None
        """When the channel's feeder was first seen to have ended; None before."""
        self._notice_at_s = self.since_s + _FIRST_NOTICE_S
        self._interrupts = waits.interrupts()

    def interrupted(self, what: str, about: str, why: Callable[[], str]) -> bool:
        """Return whether a signal arrived since the last call; log a long wait, with its reason if known."""
        now_s = time.monotonic()
        if now_s >= self._notice_at_s:
            self._notice_at_s = now_s + _NOTICE_INTERVAL_S
            seconds = int(now_s - self.since_s)
            sys.stderr.write(f'pipemode.waiting {about.format(seconds=seconds)} what="{what}{why()}"\n')
        if waits.is_stopping():
            raise ReadError("The process is ending")
        before, self._interrupts = self._interrupts, waits.interrupts()
        return self._interrupts != before


class _Benchmark:
    """Prints figures to file descriptor 1, in the format of SageMaker's PipeModeDataset."""

    def __init__(self, options: ReaderOptions) -> None:
        self._totals = options.benchmark
        self._interval = options.benchmark_records_interval
        self._records = 0
        self._read_ns = 0

    def count(self, records: int, read_ns: int, size_bytes: int) -> None:
        self._read_ns += read_ns
        self._records += max(records, 1)
        if self._interval > 0 and self._records % self._interval == 0:
            head = "PipeModeDatasetOp::Dataset::Iterator records"
            self._print(f"{head}: {self._records}\n{head} read_time_ns: {read_ns}\n{head} read_bytes: {size_bytes}\n")

    def finish(self, size_bytes: int) -> None:
        if self._totals:
            head = "PipeModeDatasetOp::Dataset::Iterator total"
            rate = size_bytes / (1 << 30) / (self._read_ns * 1e-9) if self._read_ns else float("inf")
            self._print(
                f"{head} read_time_ms: {self._read_ns * 1e-6:g}\n{head} read_bytes: {size_bytes}\n"
                f"{head} read_GB/s: {rate:g}\n"
            )

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # file descriptor 1 is closed
            os.write(1, text.encode())


class _EpochReader:
    def __init__(self, options: ReaderOptions) -> None:
        self._options = options
        self._framer = make_framer(options)
        self._benchmark = _Benchmark(options)
        self._one_by_one = options.benchmark_records_interval > 0
        self._epoch = 0
        self._fd = -1
        self._bytes_read = 0
        self._wait: _Wait | None = None

    def chunks(self) -> Iterator[Chunk]:
        yield from self._open()
        yield from self._first_writer()
        while True:
            start_ns, before = time.perf_counter_ns(), self._framer.taken
            try:
                piece = os.read(self._fd, _PIECE_BYTES)
            except BlockingIOError:
                yield from self._quiet("for data")
                continue
            except OSError as error:
                raise self._error(f"Pipe mode: reading the FIFO failed: {error.strerror}") from error
            self._wait = None
            self._bytes_read += len(piece)
            records = self._framer.take(piece) if piece else self._framer.finish()
            if not piece and self._outcome_text():
                # Only the outcome file confirms that the last line of a text is whole, not cut off.
                records = _without_records(records)
            try:
                yield from self._to_chunks(records, start_ns, before)
            except FramingError as error:
                problem = "" if piece else self._outcome_text()
                raise self._error(f"{error}{'; ' if problem else ''}{problem}") from error
            if not piece:
                break
        problem = self._outcome_text()
        if problem:
            raise self._error(f"The stream ended early or is damaged: {problem}")
        self._benchmark.count(0, 0, 0)

    def close(self) -> None:
        if self._fd >= 0:
            close_epoch(self._fd)
            self._fd = -1
        self._benchmark.finish(self._bytes_read)

    def _open(self) -> Iterator[Chunk]:
        while True:
            try:
                taken = try_to_open_next_epoch(self._options)
            except EpochError as error:
                raise self._error(str(error)) from error
            if not isinstance(taken, NoEpochYet):
                self._epoch, self._fd = taken
                self._wait = None
                return
            if taken.epoch is None:
                yield from self._quiet("for the lock of the epoch counter")
                continue
            self._epoch = taken.epoch
            yield from self._quiet("for the FIFO to be made")
            if self._wait is not None:
                self._limit_absence(self._wait, taken.feeder_end)

    def _limit_absence(self, wait: _Wait, feeder_end: str | None) -> None:
        now_s = time.monotonic()
        if feeder_end is None:
            wait.feeder_ended_s = None
        elif wait.feeder_ended_s is None:
            wait.feeder_ended_s = now_s
        over = now_s - wait.since_s >= self._options.path_timeout_s
        if wait.feeder_ended_s is not None and (over or now_s - wait.feeder_ended_s >= _RESTART_S):
            what = "Nobody fills" if Path(self._path).exists() else "File does not exist:"
            raise self._error(f"{what} {self._path}. {self._about_end(feeder_end, self._epoch)}")
        if over:
            raise self._error(
                f"File does not exist: {self._path}. Nothing made it within {self._options.path_timeout_s:.0f} s:"
                " start the feeder, or see whether this epoch exists at all"
                f"{about_other_reader(self._options.channel, own_fd=self._fd)}"
            )

    def _first_writer(self) -> Iterator[Chunk]:
        # A read from a FIFO without a writer returns end of file.
        if not stat.S_ISFIFO(os.fstat(self._fd).st_mode):
            return
        while not has_been_written(self._fd):
            reason = self._no_writer_reason()
            if reason and not has_been_written(self._fd):  # a feeder may write its last bytes and then end
                raise self._error(f"Nobody fills {self._path}. {reason}")
            yield from self._quiet("for a writer to open the FIFO")

    def _no_writer_reason(self) -> str:
        feeder_end = end_of_feeder(self._options, self._epoch)
        if feeder_end is not None:
            return self._about_end(feeder_end, self._epoch + 1)
        if os.fstat(self._fd).st_nlink == 0:
            return (
                "It was removed or replaced while this reader waited for its first byte."
                f" Take the next epoch, {self._epoch + 1}, or start feeder and script anew"
            )
        return ""

    def _about_end(self, reason: str | None, next_epoch: int) -> str:
        return (
            f"The feeder of channel {self._options.channel} ended before epoch {self._epoch}: {reason}."
            f" Start the feeder again, with --first-epoch {next_epoch}, then the script; in a job, see its log"
        )

    def _quiet(self, what: str) -> Iterator[Chunk]:
        if self._wait is None:
            self._wait = _Wait()
        about = f"channel={self._options.channel} seconds={{seconds}} path={self._path}"
        if self._wait.interrupted(what, about, lambda: about_other_reader(self._options.channel, own_fd=self._fd)):
            yield Chunk([], interrupted=True)
            return
        if self._fd >= 0:
            poll = select.poll()
            poll.register(self._fd, select.POLLIN)
            poll.poll(_PATIENCE_S * 1000)
        else:
            time.sleep(_PATIENCE_S)
        yield Chunk([])

    def _to_chunks(self, records: Iterator[bytes], start_ns: int, before: int) -> Iterator[Chunk]:
        """Yield chunks of whole records; records before an error are yielded before it is raised."""
        chunk: list[bytes] = []
        try:
            for record in records:
                chunk.append(record)
                if self._one_by_one:
                    now_ns = time.perf_counter_ns()
                    self._benchmark.count(1, now_ns - start_ns, self._framer.taken - before)
                    yield Chunk(chunk)
                    chunk = []
                    start_ns, before = time.perf_counter_ns(), self._framer.taken
        except FramingError:
            self._print_warnings()
            if chunk:
                yield Chunk(chunk)
            raise
        self._print_warnings()
        if chunk:
            self._benchmark.count(len(chunk), time.perf_counter_ns() - start_ns, self._framer.taken - before)
            yield Chunk(chunk)

    def _outcome_text(self) -> str:
        path = self._options.outcome_path(self._epoch)
        try:
            text = read_outcome(path)
        except OSError as error:
            return f"the outcome file {path} cannot be read: {error.strerror}"
        problem = "" if text is None else outcome_problem(text, self._bytes_read)
        return f"{problem} [{path}]" if problem else ""

    def _print_warnings(self) -> None:
        for warning in self._framer.warnings:
            sys.stderr.write(f"WARN PipeModeDataset: {warning} ({self._where})\n")
        self._framer.warnings.clear()

    @property
    def _path(self) -> str:
        return self._options.fifo_path(self._epoch)

    @property
    def _where(self) -> str:
        return f"channel {self._options.channel}, epoch {self._epoch}, {self._path}"

    def _error(self, text: str) -> ReadError:
        place = f"byte offset {self._framer.record_offset}, record {self._framer.record_number}"
        return ReadError(f"{text} ({self._where}, {place})")


def _without_records(records: Iterator[bytes]) -> Iterator[bytes]:
    """Consume `records` and yield nothing; raise the error at its end, if any."""
    for _ in records:
        pass
    yield from ()
