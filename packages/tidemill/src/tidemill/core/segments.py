"""Write log segments, the files that hold the lines of a log stream.

A stream is a directory of append-only files. The shim writes them with this module, which needs only the standard
library; `tidemill.store.logs.streams` reads them. A line is `MILLISECONDS SP MESSAGE LF`, and the message is a line of
output (`shim.lines`). Time stamps never decrease within a stream, even after a restart. Bytes after the last LF of a
file are an interrupted write.

The line of an event that a client has put is `MILLISECONDS+LAG SP MESSAGE LF`. LAG is the time from the event to its
arrival in milliseconds; a minus sign stands before it if the event is ahead. The message may have line feeds, which are
stored as the byte FF: no UTF-8 text has that byte.

Lines are written immediately, but fsync is called only when a segment is full or closed: until then lines survive a
kill of the writer, but not a power failure.
"""

import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tidemill.core import faults
from tidemill.core.clock import Clock, SystemClock
from tidemill.core.files import make_directory, sync_directory, write_json

SEGMENT_BYTES = 64 * 1024 * 1024
MESSAGE_MAX_BYTES = 256 * 1024
"""Maximum bytes of an event; a longer line becomes several events."""
STREAM_FILE = "stream.json"

TAIL_BYTES = 2 * MESSAGE_MAX_BYTES  # room for the last complete line and an incomplete one after it
TIME_MAX_DIGITS = 15

_SEGMENT = re.compile(r"([0-9]{8,12})\.log")
_PUT = re.compile(rb"([0-9]{1,15})([+-][0-9]{1,15}) ")
_LINE_FEED = b"\xff"


def group_directory(root: Path, group: str) -> Path:
    """Return the directory of all streams of a log group.

    Args:
        root: Directory of all logs.
        group: Name of the group.
    """
    return root / _digest(group)


def stream_directory(root: Path, group: str, stream: str) -> Path:
    """Return the directory of a log stream. Names are hashed, so none of their characters reaches the file system.

    Args:
        root: Directory of all logs.
        group: Name of the group.
    """
    return group_directory(root, group) / _digest(stream)


def create_stream(root: Path, group: str, stream: str, *, clock: Clock | None = None, of_client: bool = False) -> Path:
    """Create a log stream durably, unless it exists, and return its directory.

    Args:
        group: E.g. ``/aws/sagemaker/TrainingJobs``.
        stream: E.g. ``JOB/algo-1-1700000000``.
        clock: Source of the creation time. Default: the system clock.
        of_client: Whether clients put its events; recorded. Default: a job or an endpoint writes it.
    """
    directory = stream_directory(root, group, stream)
    if not (directory / STREAM_FILE).exists():
        created_ms = (clock or SystemClock()).now_ms()
        make_directory(directory)
        about = {"version": 1, "group": group, "stream": stream, "created_ms": created_ms}
        write_json(directory / STREAM_FILE, about | ({"of_client": True} if of_client else {}))
        # Listings look into a group again only when its directory has changed.
        os.utime(directory.parent)
    return directory


def segments_of(directory: Path) -> list[int]:
    """Return the numbers of a stream's segments, in order.

    Args:
        directory: Directory of the stream; it need not exist.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names only, called often
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for match in map(_SEGMENT.fullmatch, names) if match)


def segment_path(directory: Path, number: int) -> Path:
    """Return the file of a segment.

    Args:
        directory: Directory of the stream.
        number: Number of the segment, from 1.
    """
    return directory / f"{number:08}.log"


def time_of(line: bytes) -> int | None:
    """Return the time stamp of a stored line, in milliseconds since the epoch; None if the line is damaged.

    Args:
        line: Bytes of the line.
    """
    digits, separator, _ = line[: TIME_MAX_DIGITS + 1].partition(b" ")
    if separator and digits.isdigit():
        return int(digits)
    put = _PUT.match(line)
    return int(put[1]) if put is not None else None


def message_of(line: bytes) -> bytes:
    """Return the message of a stored line whose time is known.

    Args:
        line: Bytes of the line.
    """
    head, _, message = line.partition(b" ")
    return message if head.isdigit() else message.replace(_LINE_FEED, b"\n")


def ingested_of(line: bytes) -> int | None:
    """Return when a stored line arrived, in milliseconds since the epoch: the time of a line of output, which is stored
    at once. None if the line is damaged.

    Args:
        line: Bytes of the line.
    """
    put = _PUT.match(line)
    return int(put[1]) + int(put[2]) if put is not None else time_of(line)


def put_line(message: str, *, at_ms: int, ingested_ms: int) -> bytes:
    """Return the stored line of an event that a client has put, with its LF.

    Args:
        message: Its text, which may have line feeds.
        at_ms: Its time stamp, in milliseconds since the epoch.
        ingested_ms: When it arrived.
    """
    text = message.encode("utf-8", "surrogatepass").replace(b"\n", _LINE_FEED)
    return b"%d%+d %b\n" % (at_ms, ingested_ms - at_ms, text)


class SegmentWriter:
    """Appends lines to a stream. There is one writer per stream; several threads may call its methods.

    Args:
        directory: Directory of the stream; created if missing.
        segment_bytes: Maximum size of a file; lines that would exceed it go to a new file.
        clock: Source of the time stamps.
        step: Number of the first segment, and difference between the numbers of two; more than 1 leaves room for others
            between them.

    Lines that could not be written completely (disk full) are removed again, and the caller gets the OSError and may
    retry the same lines.
    """

    def __init__(
        self, directory: Path, *, segment_bytes: int = SEGMENT_BYTES, clock: Clock | None = None, step: int = 1
    ) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._clock = clock or SystemClock()
        self._step = step
        self._lock = threading.Lock()
        self._torn = False
        make_directory(directory)
        segments = segments_of(directory)
        self._number = segments[-1] if segments else step
        self._fd = self._open(self._number)
        self._size = _cut_torn_tail(self._fd)
        self._last_ms = self._find_last_ms(segments)

    @property
    def last_ms(self) -> int:
        """Time stamp of the last line; 0 before the first."""
        return self._last_ms

    def write(self, line: bytes) -> None:
        """Append one line, given with or without its LF.

        Args:
            line: Time stamp and message.
        """
        self.write_many((line,))

    def write_many(self, lines: Iterable[bytes]) -> None:
        """Append lines at once, with the same time stamp and in the same segment.

        Raises:
            OSError: The lines could not be stored; none of them is.
        """
        with self._lock:
            now_ms = max(self._clock.now_ms(), self._last_ms)
            head = b"%d " % now_ms
            data = b"".join(b"%b%b\n" % (head, message) for line in lines for message in _messages(line))
            if self._size and self._size + len(data) > self._segment_bytes:
                self._rotate()
            self._append(data)
            self._last_ms = now_ms

    def write_stored(self, lines: bytes) -> None:
        """Append lines that another writer has stored, with their time stamps.

        Raises:
            OSError: The lines could not be stored; none of them is.
        """
        with self._lock:
            if self._size and self._size + len(lines) > self._segment_bytes:
                self._rotate()
            self._append(lines)
            self._last_ms = max(self._last_ms, _last_time(self._fd, self._size) or 0)

    def sync(self) -> None:
        """Flush everything written so far to the disk."""
        with self._lock:
            os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close; a second call has no effect."""
        with self._lock:
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, number: int) -> int:
        path = segment_path(self._directory, number)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        sync_directory(self._directory)
        return fd

    def _find_last_ms(self, segments: list[int]) -> int:
        last = _last_time(self._fd, self._size)
        for number in reversed(segments[:-1]):
            if last is not None:
                break
            fd = os.open(segment_path(self._directory, number), os.O_RDONLY | os.O_CLOEXEC)
            try:
                last = _last_time(fd, os.fstat(fd).st_size)
            finally:
                os.close(fd)
        return last or 0

    def _rotate(self) -> None:
        faults.point("segments.rotate")
        fd = self._open(self._number + self._step)
        full, self._fd = self._fd, fd
        self._number += self._step
        self._size = 0
        try:
            os.fsync(full)
        finally:
            os.close(full)

    def _append(self, data: bytes) -> None:
        if self._fd < 0:
            raise ValueError(f"the log stream {self._directory} is closed; open a new SegmentWriter")
        if not data:
            return
        if self._torn:  # an earlier failed write could not be removed then
            os.ftruncate(self._fd, self._size)
            self._torn = False
        try:
            faults.point("segments.write")
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._torn = True
            os.ftruncate(self._fd, self._size)
            self._torn = False
            raise
        self._size += len(data)


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _messages(line: bytes) -> Iterator[bytes]:
    """Yield the events of a line: one, unless it contains line feeds or is too long."""
    line = line.removesuffix(b"\n")
    if len(line) <= MESSAGE_MAX_BYTES and b"\n" not in line:
        yield line
        return
    for part in line.split(b"\n"):
        start = 0
        while len(part) - start > MESSAGE_MAX_BYTES:
            end = _character_boundary(part, start + MESSAGE_MAX_BYTES)
            yield part[start:end]
            start = end
        yield part[start:]


def _character_boundary(text: bytes, end: int) -> int:
    """Return the last position up to ``end`` that does not split a UTF-8 character; ``end`` itself for other bytes."""
    for place in range(end, end - 4, -1):
        if text[place] & 0xC0 != 0x80:
            return place
    return end


def _cut_torn_tail(fd: int) -> int:
    """Remove the bytes after the last LF, and return the remaining size."""
    size = end = os.fstat(fd).st_size
    while end > 0:
        start = max(0, end - TAIL_BYTES)
        feed = os.pread(fd, end - start, start).rfind(b"\n")
        if feed >= 0:
            end = start + feed + 1
            break
        end = start
    if end != size:
        os.ftruncate(fd, end)
    return end


def _last_time(fd: int, size: int) -> int | None:
    """Return the time stamp of a segment's last line, ignoring damaged lines; None without a line."""
    start = max(0, size - TAIL_BYTES)
    lines = os.pread(fd, size - start, start).split(b"\n")[:-1]
    if start > 0:  # the first piece is the end of a line that began before
        del lines[:1]
    return next((time for time in map(time_of, reversed(lines)) if time is not None), None)
