"""The lines of one log segment: read from any position in both directions, and found by time.

The segments of a client's stream may be split while they are read: `segments_from` and `segments_before` miss nothing.

Only complete lines are returned. Bytes after the last LF belong to a line that is still being written or was cut off.
"""

import math
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tidemill.core.segments import segment_path, segments_of, time_of

BLOCK_BYTES = 64 * 1024


class SegmentFile:
    """An open segment. One that does not exist reads as empty.

    Attributes:
        end: Offset after the last complete line at the time of opening.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._fd = -1
        self.end = 0
        if self._fd >= 0:
            self.end = self._feed_before(os.fstat(self._fd).st_size) + 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def begins_line(self, offset: int) -> bool:
        """Return whether a line begins, or will begin, at ``offset``.

        Args:
            offset: Bytes from the start of the segment.
        """
        return offset == 0 or (offset <= self.end and os.pread(self._fd, 1, offset - 1) == b"\n")

    def line_begin(self, offset: int, *, before: int) -> int:
        """Return the offset of the first line at or after ``offset``, if it is before ``before``; else that of the line
        around ``offset``.

        Args:
            offset: Bytes from the start of the segment.
            before: Upper bound of the result, in bytes.
        """
        if self.begins_line(offset):
            return offset
        feed = self.read(offset, before - 1).find(b"\n")
        return offset + feed + 1 if feed >= 0 else self._feed_before(offset) + 1

    def read(self, begin: int, end: int) -> bytes:
        """Return the bytes between two offsets; fewer if the file was truncated meanwhile.

        Args:
            begin: First byte.
            end: Byte after the last one.
        """
        parts: list[bytes] = []
        while begin < end:
            part = os.pread(self._fd, end - begin, begin)
            if not part:
                break
            parts.append(part)
            begin += len(part)
        return b"".join(parts)

    def lines(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield offsets and lines (without LF), from the line that begins at ``offset``."""
        rest = b""
        at = offset  # of the first byte of rest
        read = offset
        while read < self.end:
            block = os.pread(self._fd, min(BLOCK_BYTES, self.end - read), read)
            if not block:  # cut by a writer that came back
                return
            read += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield at, line
                at += len(line) + 1

    def lines_before(self, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield offset and content of the lines that end before ``offset``, last first; a line begins at ``offset``."""
        rest = b""  # the end of the line that begins before what was read
        read = max(0, min(offset, self.end) - 1)  # without the LF of the last line
        if min(offset, self.end) == 0:
            return
        while read > 0:
            start = max(0, read - BLOCK_BYTES)
            data = os.pread(self._fd, read - start, start) + rest
            read = start
            rest, *lines = data.split(b"\n")
            at = start + len(data)
            for line in reversed(lines):
                at -= len(line)
                yield at, line
                at -= 1
        yield 0, rest

    def find(self, time_ms: int) -> int:
        """Return the offset of the first line at or after a time, or `end` if there is no such line.

        Args:
            time_ms: Milliseconds since the epoch.
        """
        low, high = 0, self.end  # lines before low are earlier than time_ms; lines from high on are not
        while high - low > BLOCK_BYTES:
            middle = (low + high) // 2
            start, line = self._line_from(middle)
            if start >= high:
                high = middle
            elif (time_of(line) or 0) < time_ms:
                low = start + len(line) + 1
            else:
                high = start
        for offset, line in self.lines(low if self.begins_line(low) else self._line_from(low)[0]):
            found_ms = time_of(line)
            if found_ms is not None and found_ms >= time_ms:
                return offset
        return self.end

    def _line_from(self, offset: int) -> tuple[int, bytes]:
        """Return the first undamaged line that begins at or after ``offset``, or (`end`, empty) without such a line."""
        if not self.begins_line(offset):
            at, piece = next(self.lines(offset), (self.end - 1, b""))
            offset = at + len(piece) + 1
        sound = ((at, line) for at, line in self.lines(offset) if time_of(line) is not None)
        return next(sound, (self.end, b""))

    def _feed_before(self, offset: int) -> int:
        """Return the offset of the last LF before ``offset``, or -1 without one."""
        while offset > 0:
            start = max(0, offset - BLOCK_BYTES)
            feed = os.pread(self._fd, offset - start, start).rfind(b"\n")
            if feed >= 0:
                return start + feed
            offset = start
        return -1


def segments_from(directory: Path, first: int = 0) -> Generator[tuple[int, SegmentFile]]:
    """Yield numbers and segments of a stream in order. Each is closed when the next one is asked for.

    Args:
        directory: Of the stream; need not exist.
        first: Least number.
    """
    number = first - 1
    # The directory is read again after each segment, since its end may have become a segment of its own.
    while (following := min((each for each in segments_of(directory) if each > number), default=None)) is not None:
        number = following
        with SegmentFile(segment_path(directory, number)) as file:
            yield number, file


def segments_before(directory: Path, last: float = math.inf) -> Generator[tuple[int, SegmentFile]]:
    """Yield numbers and segments of a stream in reverse order. Each is closed when the next one is asked for.

    Args:
        directory: Of the stream; need not exist.
        last: Largest number.
    """
    while (number := _at_most(directory, last)) is not None:
        with SegmentFile(segment_path(directory, number)) as file:
            # If its end became a segment of its own before it was opened, that one comes first.
            if _at_most(directory, last) == number:
                last = number - 1
                yield number, file


def _at_most(directory: Path, last: float) -> int | None:
    return max((each for each in segments_of(directory) if each <= last), default=None)
