"""Events of many log streams in the order of time, page by page.

The order is total: by time, name of the stream, position in the stream. A token is a position in that order. So the
cost of a page depends only on what it returns: streams without events there are not opened, and in the others the
position is found by bisection.
"""

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.segments import ingested_of
from tidemill.store.logs.spans import StreamSpans
from tidemill.store.logs.streams import EVENT_OVERHEAD_BYTES, PAGE_MAX_BYTES, LogPosition, LogReader, StoredLine
from tidemill.store.logs.terms import LogTerms

SCAN_MAX_BYTES = 4 * 1024 * 1024
"""Bytes of stored lines that one page examines. So a page may have no events, but a token to continue with."""

_FIRST_BATCH_BYTES = 4 * 1024
_BATCH_MAX_BYTES = 64 * 1024
_TOKEN = re.compile(r"([0-9]{1,15})/([0-9]{1,12})/([0-9]{1,15})/(.{1,512})", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The arguments of a search. Times are in milliseconds since the epoch, both inclusive.

    Attributes:
        limit: Largest number of events in a page. A page also ends before it holds more than 1 MiB.
        token: Of an earlier page.
    """

    terms: LogTerms
    start_ms: int = 0
    end_ms: int | None = None
    limit: int
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEvent:
    """An event and its position: stream, segment and offset, which are the same in every search."""

    stream: str
    timestamp_ms: int
    ingested_ms: int
    message: str
    position: LogPosition


@dataclass(frozen=True, slots=True)
class FoundPage:
    """Events in order, and the token of the next page (None at the end)."""

    events: tuple[FoundEvent, ...]
    next_token: str | None


def search(streams: Iterable[tuple[str, Path]], wanted: Search, *, spans: StreamSpans) -> FoundPage:
    """Return one page. May take tenths of a second: call it in a thread.

    Args:
        spans: Caches the spans of streams; pass the same object for every page.

    Raises:
        ValueError: The token is not one of these streams.
    """
    resume = None if wanted.token is None else _Resume.parse(wanted.token)
    found = (_cursor(name, directory, wanted, resume, spans) for name, directory in streams)
    waiting = [cursor for cursor in found if cursor is not None]
    heapq.heapify(waiting)
    page = _Page(wanted)
    while waiting and page.fill(waiting[0], until=_second(waiting)):
        if waiting[0].line() is None:
            heapq.heappop(waiting)
        else:
            heapq.heapreplace(waiting, waiting[0])
    return page.ended(more=bool(waiting))


def _second(waiting: "list[_Cursor]") -> "_Cursor | None":
    """Return the second cursor of a heap in the order of time, or None."""
    return min(waiting[1:3], default=None)


@dataclass(frozen=True, slots=True)
class _Resume:
    """The place after an event: its time, its stream, and the position after it."""

    time_ms: int
    stream: str
    position: LogPosition

    @classmethod
    def parse(cls, token: str) -> "_Resume":
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise _bad_token(token)
        return cls(int(match[1]), match[4], LogPosition(int(match[2]), int(match[3])))

    def token(self) -> str:
        return f"{self.time_ms}/{self.position.segment}/{self.position.offset}/{self.stream}"


class _Cursor:
    """A position in one stream. It reads ahead a little and keeps no file open, as there may be thousands of cursors.

    Attributes:
        time_ms: Of the line at the cursor.
    """

    def __init__(self, name: str, reader: LogReader, begin: LogPosition, *, time_ms: int) -> None:
        self.name = name
        self.time_ms = time_ms
        self._reader = reader
        self._next = begin
        self._lines: list[StoredLine] = []
        self._taken = 0
        self._batch_bytes = _FIRST_BATCH_BYTES

    def __lt__(self, other: "_Cursor") -> bool:
        return (self.time_ms, self.name) < (other.time_ms, other.name)

    def is_before(self, other: "_Cursor | None") -> bool:
        """Whether this cursor's line comes before that of another stream, if there is one."""
        return other is None or self.time_ms < other.time_ms or (self.time_ms == other.time_ms and self < other)

    def line(self) -> StoredLine | None:
        """Return the line at the cursor, or None at the end of the stream."""
        if self._taken == len(self._lines):
            self._lines = self._reader.lines(self._next, max_bytes=self._batch_bytes)
            self._batch_bytes = min(4 * self._batch_bytes, _BATCH_MAX_BYTES)
            self._taken = 0
            if not self._lines:
                return None
            self._next = self._lines[-1].end
        line = self._lines[self._taken]
        if line.time_ms is not None:  # a damaged line takes the time of the one before
            self.time_ms = line.time_ms
        return line

    def advance(self) -> StoredLine | None:
        """Go to the next line, and return it as `line` does."""
        self._taken += 1
        return self.line()


class _Page:
    """A page that is being filled."""

    def __init__(self, wanted: Search) -> None:
        self._wanted = wanted
        self._end_ms = float("inf") if wanted.end_ms is None else wanted.end_ms
        self._events: list[FoundEvent] = []
        self._page_bytes = 0
        self._scanned_bytes = 0
        self._is_through = False
        self._last: _Resume | None = None

    def fill(self, cursor: _Cursor, *, until: _Cursor | None) -> bool:
        """Add the lines of one stream up to the next line of another stream. False if the page is full first."""
        match = self._wanted.terms.match
        taken: StoredLine | None = None
        taken_ms = 0
        line = cursor.line()
        going_on = True
        while line is not None and cursor.is_before(until):
            self._is_through = cursor.time_ms > self._end_ms
            message = line.message
            if self._is_through or (match(message) and not self._take(cursor, line, message)):
                going_on = False
                break
            taken, taken_ms = line, cursor.time_ms
            self._scanned_bytes += len(line.data)
            line = cursor.advance()
            if self._scanned_bytes >= SCAN_MAX_BYTES:
                going_on = False
                break
        if taken is not None:
            self._last = _Resume(taken_ms, cursor.name, taken.end)
        return going_on

    def ended(self, *, more: bool) -> FoundPage:
        """Return the page; ``more`` says whether there are streams that were not read to their end."""
        token = self._last.token() if more and self._last is not None and not self._is_through else None
        return FoundPage(tuple(self._events), token)

    def _take(self, cursor: _Cursor, line: StoredLine, message: bytes) -> bool:
        size = len(message) + EVENT_OVERHEAD_BYTES
        full = len(self._events) >= self._wanted.limit or self._page_bytes + size > PAGE_MAX_BYTES
        if full and self._events:
            return False
        self._page_bytes += size
        self._events.append(
            FoundEvent(
                stream=cursor.name,
                timestamp_ms=cursor.time_ms,
                ingested_ms=ingested_of(line.data) or cursor.time_ms,
                message=message.decode("utf-8", "replace"),
                position=LogPosition(line.segment, line.offset),
            )
        )
        return True


def _cursor(name: str, directory: Path, wanted: Search, resume: _Resume | None, spans: StreamSpans) -> _Cursor | None:
    """Return the cursor of a stream, or None if the stream has no event after ``resume`` that is wanted."""
    span = spans.of(directory)
    if span is None:
        return None
    if resume is not None and name == resume.stream and wanted.start_ms <= resume.time_ms:
        reader = LogReader(directory)
        place = reader.place_of(resume.position)
        if place is None:
            raise _bad_token(wanted.token)
        return _begun(_Cursor(name, reader, place, time_ms=resume.time_ms))
    from_ms = wanted.start_ms
    if resume is not None:
        # Events of the token's millisecond in streams with smaller names were on earlier pages.
        from_ms = max(from_ms, resume.time_ms + (name < resume.stream))
    if span.last_ms < from_ms or (wanted.end_ms is not None and span.first_ms > wanted.end_ms):
        return None
    reader = LogReader(directory)
    if span.first_ms >= from_ms:
        return _Cursor(name, reader, LogPosition(0, 0), time_ms=span.first_ms)  # read when it is first
    return _begun(_Cursor(name, reader, reader.find(from_ms), time_ms=from_ms))


def _begun(cursor: _Cursor) -> _Cursor | None:
    return cursor if cursor.line() is not None else None


def _bad_token(token: str | None) -> ValueError:
    return ValueError(f"{str(token)[:64]!r} is not a token of this search; pass nextToken unchanged, or none")
