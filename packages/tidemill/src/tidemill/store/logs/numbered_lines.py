"""The lines of a log stream by number, as a screen shows them, from any place of a stream of any length.

A stored line with a carriage return at its end is a state of a progress bar, which the next stored line overwrites
(`tidemill.shim.lines`). So a *line* is a stored line without one, together with the states before it. Its number never
changes, from 0 on; states at the end of a stream are one more line, which still changes.

To find a line, the ends of lines are counted once, in blocks, and the counts are kept in memory: 16 bytes for 64 KiB of
log. A later look counts only what was written since.
"""

import os
import re
import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.core.files import read_json
from tidemill.core.segments import STREAM_FILE, segment_path, segments_of
from tidemill.store.logs.streams import LogPosition, LogReader, StoredLine

__all__ = ["LineNumbers", "NumberedLine", "NumberedPage"]

_BLOCK_BYTES = 64 * 1024
_BATCH_BYTES = 256 * 1024
_STREAMS_KEPT = 64
_PAGE_BYTES = 8 * 1024 * 1024
_END = re.compile(rb"\n(?<!\r\n)")  # begins with a literal, so that the search is fast


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedLine:
    """One line.

    Attributes:
        number: From 0 on.
        time_ms: Milliseconds since the epoch; 0 if the line is damaged.
        message: Its text, which may be cut.
        size_bytes: Bytes of the whole text.
        is_state: Whether a later line can still overwrite it.
    """

    number: int
    time_ms: int
    message: str
    size_bytes: int
    is_state: bool


@dataclass(frozen=True, slots=True)
class NumberedPage:
    """Lines in a row, and how many the stream has.

    Attributes:
        first: Number of the first line that is still kept.
        count: Number after that of the last line.
    """

    lines: tuple[NumberedLine, ...]
    first: int
    count: int


class LineNumbers:
    """Finds lines by number. Methods read files: call them in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: OrderedDict[Path, _LineIndex] = OrderedDict()

    def page(self, directory: Path, *, first: int, limit: int, message_max_bytes: int, since_ms: int) -> NumberedPage:
        """Return the lines from a number on.

        Args:
            directory: Of the stream; need not exist.
            first: Number of the first line; a negative one counts from the end.
            limit: Most lines; fewer, but at least one, if their messages have more than 8 MiB.
            message_max_bytes: A longer message is cut.
            since_ms: Older lines are left out, as those that a retention policy removes; 0 leaves none out.
        """
        stream = self._stream(directory)
        with stream.lock:
            stream.count()
            kept = stream.number_at(LogReader(directory).find(since_ms)) if since_ms else 0
            ends = stream.ends
            last_states = list(_lines(directory, stream.position_of(ends), ends, 1, message_max_bytes))
            count = ends + len(last_states)
            begin = max(kept, first if first >= 0 else count + first)
            if begin >= ends:
                return NumberedPage(tuple(last_states[begin - ends :]), kept, count)
            lines = _lines(directory, stream.position_of(begin), begin, limit, message_max_bytes)
            return NumberedPage(tuple(lines), kept, count)

    def position_of(self, directory: Path, number: int) -> LogPosition:
        """Return the position of a line; the end of the stream if there are fewer lines.

        Args:
            directory: Of the stream.
            number: Number of the line.
        """
        stream = self._stream(directory)
        with stream.lock:
            stream.count()
            return stream.position_of(min(number, stream.ends))

    def _stream(self, directory: Path) -> "_LineIndex":
        with self._lock:
            stream = self._streams.get(directory)
            # Events that a client puts late move the lines after them, so their counts are not kept.
            if stream is None or stream.of_client:
                stream = self._streams[directory] = _LineIndex(directory)
            self._streams.move_to_end(directory)
            if len(self._streams) > _STREAMS_KEPT:
                self._streams.popitem(last=False)
            return stream


def _lines(
    directory: Path, begin: LogPosition, number: int, limit: int, message_max_bytes: int
) -> Iterator[NumberedLine]:
    """Yield lines from a position on, which is that of the line ``number``."""
    last, left_bytes = number + limit, _PAGE_BYTES
    state: StoredLine | None = None
    for line in _stored(LogReader(directory), begin):
        if line.data.endswith(b"\r"):
            state = line
            continue
        yield _shown(line, number, message_max_bytes)
        state, number = None, number + 1
        left_bytes -= min(len(line.data), message_max_bytes)
        if number == last or left_bytes <= 0:
            return
    if state is not None:
        yield _shown(state, number, message_max_bytes, is_state=True)


def _stored(reader: LogReader, begin: LogPosition) -> Iterator[StoredLine]:
    while lines := reader.lines(begin, max_bytes=_BATCH_BYTES):
        yield from lines
        begin = lines[-1].end


def _shown(line: StoredLine, number: int, message_max_bytes: int, *, is_state: bool = False) -> NumberedLine:
    message = line.message.removesuffix(b"\r")
    return NumberedLine(
        number=number,
        time_ms=line.time_ms or 0,
        message=message[:message_max_bytes].decode("utf-8", "replace"),
        size_bytes=len(message),
        is_state=is_state,
    )


class _LineIndex:
    """The counts of one stream."""

    def __init__(self, directory: Path) -> None:
        self.lock = threading.Lock()
        about = read_json(directory / STREAM_FILE)
        self.of_client = about is None or bool(about.get("of_client"))  # a client may yet create it
        self._directory = directory
        self._segments: dict[int, _Counts] = {}

    @property
    def ends(self) -> int:
        """Ends of lines in the stream."""
        return sum(each.ends for each in self._segments.values())

    def count(self) -> None:
        """Count what was written since the last call."""
        numbers = segments_of(self._directory)
        self._segments = {number: self._segments.get(number) or _Counts() for number in numbers}
        for number, counts in self._segments.items():
            counts.read_on(self._path(number))

    def position_of(self, number: int) -> LogPosition:
        """Return the position of a line, which has ``number`` ends before it."""
        before = 0
        for segment, counts in self._segments.items():
            if before + counts.ends >= number:
                path = segment_path(self._directory, segment)
                return LogPosition(segment, counts.offset_after(number - before, path))
            before += counts.ends
        return LogPosition(1, 0)

    def number_at(self, place: LogPosition) -> int:
        """Return the number of the line at a position."""
        before = sum(counts.ends for segment, counts in self._segments.items() if segment < place.segment)
        counts = self._segments.get(place.segment)
        return before if counts is None else before + counts.ends_before(place.offset, self._path(place.segment))

    def _path(self, segment: int) -> Path:
        return segment_path(self._directory, segment)


@dataclass(slots=True)
class _Counts:
    """The ends of lines in one segment: how many there are up to the end of each whole block, and of the file."""

    blocks: "array[int]" = field(default_factory=lambda: array("Q"))
    ends: int = 0
    size_bytes: int = 0

    def read_on(self, path: Path) -> None:
        """Count the ends after the last whole block."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.blocks, self.ends, self.size_bytes = array("Q"), 0, 0
            return
        try:
            size_bytes = os.fstat(fd).st_size
            if size_bytes == self.size_bytes:
                return
            if size_bytes < self.size_bytes:  # a writer removed what it could not write completely
                self.blocks = array("Q")
            self.ends = self.blocks[-1] if self.blocks else 0
            while block := _block(fd, len(self.blocks)):
                self.ends += block.count(b"\n", 1) - block.count(b"\r\n")
                if len(block) <= _BLOCK_BYTES:
                    break
                self.blocks.append(self.ends)
            self.size_bytes = size_bytes
        finally:
            os.close(fd)

    def offset_after(self, number: int, path: Path) -> int:
        """Return the offset after the end with that number, from 1 on; 0 for the number 0."""
        if number == 0:
            return 0
        index = bisect_left(self.blocks, number)
        before = self.blocks[index - 1] if index else 0
        for place in _ends_in(path, index):
            before += 1
            if before == number:
                return place
        return self.size_bytes  # the file was cut meanwhile

    def ends_before(self, offset: int, path: Path) -> int:
        """Return how many lines end up to an offset."""
        index = min(max(offset - 1, 0) // _BLOCK_BYTES, len(self.blocks))
        before = self.blocks[index - 1] if index else 0
        return before + sum(place <= offset for place in _ends_in(path, index))


def _ends_in(path: Path, index: int) -> list[int]:
    """Return the offsets after the ends of lines in a block."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # the stream is deleted meanwhile
        return []
    try:
        block = _block(fd, index)
    finally:
        os.close(fd)
    return [index * _BLOCK_BYTES + match.end() - 1 for match in _END.finditer(block, 1)]


def _block(fd: int, index: int) -> bytes:
    """Return a block with the byte before it, which decides whether a line feed at its beginning ends a line."""
    if index == 0:
        return b"\n" + os.pread(fd, _BLOCK_BYTES, 0)
    return os.pread(fd, _BLOCK_BYTES + 1, index * _BLOCK_BYTES - 1)
