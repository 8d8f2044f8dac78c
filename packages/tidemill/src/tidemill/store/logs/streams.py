"""Reads log streams: lists them, and returns their events by position or by time.

A position is a segment number and the offset of a line in it, so that continuing costs the same in streams of any
length. A time is found by bisection, since time stamps never decrease. Only the names of streams are kept in memory.

The page sizes and the two tokens are those of CloudWatch Logs: reading with the forward token at the end of a stream
returns the same token until there are new events.
"""

import contextlib
import os
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tidemill.core.files import read_json
from tidemill.core.segments import (
    STREAM_FILE,
    group_directory,
    ingested_of,
    message_of,
    segment_path,
    segments_of,
    stream_directory,
    time_of,
)
from tidemill.errors import StateCorrupt
from tidemill.store.logs.segment_file import SegmentFile, segments_before, segments_from

EVENTS_MAX = 10_000
PAGE_MAX_BYTES = 1024 * 1024
EVENT_OVERHEAD_BYTES = 26  # CloudWatch adds this to the size of every message
SETTLED_S = 2.0

_TOKEN = re.compile(r"([fb])/([0-9]{1,12})/([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line of a user's log, or an event that a client has put."""

    timestamp_ms: int
    message: str
    ingested_ms: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events in the order in which they were written, and the tokens of the pages before and after."""

    events: tuple[LogEvent, ...]
    forward_token: str
    backward_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStream:
    """The description of a stream; the times are unset until it has a line.

    Attributes:
        of_client: Whether clients put its events.
    """

    group: str
    name: str
    directory: Path
    created_ms: int
    of_client: bool
    first_event_ms: int | None
    last_event_ms: int | None
    last_ingested_ms: int | None
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogGroup:
    """A log group: the creation time of its oldest stream, and the size of all streams."""

    name: str
    created_ms: int
    stored_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class LogPosition:
    """A place in a stream: the number of a segment, and the offset of a line in it."""

    segment: int
    offset: int

    def token(self, direction: str) -> str:
        """Return the position as a token of CloudWatch Logs.

        Args:
            direction: ``f`` or ``b``.

        Returns:
            For example ``f/00000001/000000001234``.
        """
        return f"{direction}/{self.segment:08}/{self.offset:012}"


class StoredLine(NamedTuple):
    """A stored line without its LF, and its position. A named tuple, because searches create millions.

    Attributes:
        time_ms: Its time stamp; None if the line is damaged.
    """

    segment: int
    offset: int
    time_ms: int | None
    data: bytes

    @property
    def end(self) -> LogPosition:
        """The position after the line."""
        return LogPosition(self.segment, self.offset + len(self.data) + 1)

    @property
    def message(self) -> bytes:
        """The text that the user's script wrote; the whole line if it is damaged."""
        return self.data if self.time_ms is None else message_of(self.data)


class LogReader:
    """Events of one stream.

    Args:
        directory: Of the stream; need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(
        self,
        *,
        token: str | None = None,
        start_from_head: bool = False,
        start_time_ms: int | None = None,
        end_time_ms: int | None = None,
        limit: int = EVENTS_MAX,
    ) -> LogPage:
        """Return one page of events, in order of time. A full page takes milliseconds: call it in a thread.

        Args:
            token: A token of an earlier page; it contains position and direction.
            start_from_head: Without a token, begin with the earliest events instead of the latest.
            start_time_ms: Only events at or after that time, in milliseconds since the epoch.
            end_time_ms: Only events before that time.
            limit: Maximum number of events, up to 10,000; a page is also limited to 1 MiB.

        Raises:
            ValueError: The token is not one of this stream, or the limit is out of range.
        """
        if not 1 <= limit <= EVENTS_MAX:
            raise ValueError(f"limit is {limit}; expected 1 to {EVENTS_MAX} events")
        direction = "f" if start_from_head else "b"
        place = None
        if token is not None:
            direction, place = self._parse(token)
        if direction == "f":
            page = self._forward(place, start_time_ms, end_time_ms, limit)
        else:
            page = self._backward(place, start_time_ms, end_time_ms, limit)
        if page.events or token is None:
            return page
        forward, backward = (token, page.backward_token) if direction == "f" else (page.forward_token, token)
        return LogPage((), forward, backward)

    def lines(self, begin: LogPosition, *, max_bytes: int) -> list[StoredLine]:
        """Return lines from a position on, up to ``max_bytes`` or the end of the stream; at least one line if there is
        one.

        Args:
            begin: Where the first line begins.
            max_bytes: Bytes of all lines, roughly.
        """
        found: list[StoredLine] = []
        size_bytes = 0
        with contextlib.closing(self._lines(begin)) as lines:
            for segment, data, end in lines:
                found.append(StoredLine(segment, end - len(data) - 1, time_of(data), data))
                size_bytes += len(data)
                if size_bytes >= max_bytes:
                    break
        return found

    def find(self, time_ms: int) -> LogPosition:
        """Return the position of the first line at or after a time, or the end of the stream if there is none.

        Args:
            time_ms: Milliseconds since the epoch.
        """
        while True:
            numbers = self._numbers()
            place = self._find(numbers, time_ms)
            if self._numbers() == numbers:  # else a segment may have been split, and the line has moved
                return place

    def place_of(self, place: LogPosition) -> LogPosition | None:
        """Return where a reader continues that was at ``place``; None if no line began there, or will begin.

        Events of a client's stream move if another one is put before them, and old segments are removed. So there a
        reader continues at the next line, and may see events again.

        Args:
            place: Any position, also one that a client sent.
        """
        numbers = self._numbers()
        if place == LogPosition(numbers[0], 0):
            return place
        if place.segment in numbers:
            with SegmentFile(segment_path(self._directory, place.segment)) as file:
                if file.begins_line(place.offset):
                    return place
                if not self._is_of_client():
                    return None
                if place.offset < file.end:
                    return LogPosition(place.segment, file.line_begin(place.offset, before=file.end))
        following = next((number for number in numbers if number > place.segment), None)
        return LogPosition(following, 0) if following is not None and self._is_of_client() else None

    def _numbers(self) -> list[int]:
        return segments_of(self._directory) or [1]

    def _is_of_client(self) -> bool:
        about = _about(self._directory)
        return about is not None and bool(about.get("of_client"))

    def first_event_ms(self) -> int | None:
        """Time of the first event."""
        for _, file in segments_from(self._directory):
            for _, line in file.lines(0):
                return time_of(line) or 0
        return None

    def last_event_ms(self) -> int | None:
        """Time of the last event. Damaged lines have no time; 0 if all of them are damaged."""
        return self._last(time_of)

    def last_ingested_ms(self) -> int | None:
        """Time at which the last event arrived; as for `last_event_ms` if lines are damaged."""
        return self._last(ingested_of)

    def _last(self, when: Callable[[bytes], int | None]) -> int | None:
        latest_ms = None
        for line in self._lines_backward():
            time_ms = when(line)
            if time_ms is not None:
                return time_ms
            latest_ms = 0
        return latest_ms

    def _lines_backward(self) -> Iterator[bytes]:
        for _, file in segments_before(self._directory):
            for _, line in file.lines_before(file.end):
                yield line

    def stored_bytes(self) -> int:
        """Size of the stream on disk."""
        sizes_bytes = 0
        for number in segments_of(self._directory):
            with contextlib.suppress(FileNotFoundError):  # the stream, or its oldest segment, is being removed
                sizes_bytes += segment_path(self._directory, number).stat().st_size
        return sizes_bytes

    def _parse(self, token: str) -> tuple[str, LogPosition]:
        match = _TOKEN.fullmatch(token)
        place = self.place_of(LogPosition(int(match[2]), int(match[3]))) if match is not None else None
        if match is not None and place is not None:
            return match[1], place
        raise ValueError(
            f"{token[:64]!r} is not a token of this log stream; pass nextForwardToken or nextBackwardToken of an"
            " earlier page unchanged, or none"
        )

    def _forward(self, place: LogPosition | None, start_ms: int | None, end_ms: int | None, limit: int) -> LogPage:
        begin = place or LogPosition(self._numbers()[0], 0)
        if start_ms is not None:
            begin = max(begin, self.find(start_ms))
        events = _Events(limit)
        end = begin
        for at, line, after in self._lines(begin):
            time_ms = time_of(line)
            if end_ms is not None and time_ms is not None and time_ms >= end_ms:
                break
            if not events.take(time_ms, line):
                break
            end = LogPosition(at, after)
        return LogPage(events.in_order(), end.token("f"), begin.token("b"))

    def _backward(self, place: LogPosition | None, start_ms: int | None, end_ms: int | None, limit: int) -> LogPage:
        if place is None:
            place = self._end() if end_ms is None else self.find(end_ms)
        elif end_ms is not None:
            place = min(place, self.find(end_ms))
        events = _Events(limit)
        begin = place
        for at, line, start in self._lines_before(place):
            time_ms = time_of(line)
            if start_ms is not None and time_ms is not None and time_ms < start_ms:
                break
            if not events.take(time_ms, line):
                break
            begin = LogPosition(at, start)
        return LogPage(events.in_order(backward=True), place.token("f"), begin.token("b"))

    def _lines(self, begin: LogPosition) -> Generator[tuple[int, bytes, int]]:
        """Yield (segment, line, offset after it) from a position on."""
        for number, file in segments_from(self._directory, begin.segment):
            for offset, line in file.lines(begin.offset if number == begin.segment else 0):
                yield number, line, offset + len(line) + 1

    def _lines_before(self, end: LogPosition) -> Iterator[tuple[int, bytes, int]]:
        """Yield (segment, line, its offset) backward from a position."""
        for number, file in segments_before(self._directory, end.segment):
            for offset, line in file.lines_before(end.offset if number == end.segment else file.end):
                yield number, line, offset

    def _end(self) -> LogPosition:
        with contextlib.closing(segments_before(self._directory)) as segments:
            number, file = next(segments, (1, None))
            return LogPosition(number, 0 if file is None else file.end)

    def _find(self, numbers: list[int], time_ms: int) -> LogPosition:
        """Return the position of the first line at or after a time, or the end without such a line."""
        # The first segment whose first line is late enough; the wanted line may also be in the segment before.
        later = bisect_left(numbers, time_ms, key=self._first_time)
        if later > 0:
            number = numbers[later - 1]
            with SegmentFile(segment_path(self._directory, number)) as file:
                offset = file.find(time_ms)
                if offset < file.end or later == len(numbers):
                    return LogPosition(number, offset)
        return LogPosition(numbers[min(later, len(numbers) - 1)], 0)

    def _first_time(self, number: int) -> float:
        with SegmentFile(segment_path(self._directory, number)) as file:
            for _, line in file.lines(0):
                return time_of(line) or 0
        return float("inf")  # an empty segment: every later line will be in it or after it


class LogStreams:
    """All streams below a directory, made by `tidemill.core.segments.create_stream`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._names: dict[Path, dict[str, str]] = {}
        self._listed: dict[Path, tuple[int, list[str]]] = {}
        self._groups: dict[str, str] = {}
        self._directories: dict[tuple[str, str], Path] = {}

    def open(self, group: str, name: str) -> LogReader | None:
        """Return the reader of a stream, or None if there is no such stream.

        Args:
            group: Name of the group.
        """
        directory = stream_directory(self._root, group, name)
        return LogReader(directory) if (directory / STREAM_FILE).exists() else None

    def names(self, group: str, *, prefix: str = "") -> list[str]:
        """Return the sorted names of the streams of a group; an empty list if there are none or no such group.

        Args:
            prefix: Only names that begin with it. Default: all.
        """
        with self._lock:
            names = self._sorted_names(group_directory(self._root, group))
        first = bisect_left(names, prefix)
        last = first
        while last < len(names) and names[last].startswith(prefix):
            last += 1
        return names[first:last]

    def directory(self, group: str, name: str) -> Path:
        """Return the directory of a stream, for readers; it need not exist.

        Args:
            group: Name of the group.
        """
        known = self._directories.get((group, name))
        if known is None:
            known = stream_directory(self._root, group, name)
            if (known / STREAM_FILE).exists():  # else clients could ask for names without end
                self._directories[group, name] = known
        return known

    def groups(self) -> list[str]:
        """Return the sorted names of all groups that have streams."""
        with self._lock, os.scandir(self._root) as entries:
            found = {
                entry.name: self._groups.get(entry.name) or _group_of(Path(entry.path))
                for entry in entries
                if entry.is_dir()
            }
            self._groups = {digest: name for digest, name in found.items() if name is not None}
            return sorted(self._groups.values())

    def describe_group(self, group: str) -> LogGroup:
        """Return the description of a group. It reads from every stream, so call it in a thread.

        Args:
            group: Name of the group; it need not exist.

        Returns:
            Creation time and bytes of its streams.
        """
        directories = [self.directory(group, name) for name in self.names(group)]
        created = [int(about["created_ms"]) for each in directories if (about := _about(each)) is not None]
        return LogGroup(
            name=group,
            created_ms=min(created, default=0),
            stored_bytes=sum(LogReader(each).stored_bytes() for each in directories),
        )

    def describe(self, group: str, name: str) -> LogStream | None:
        """Return the description of a stream, or None if there is no such stream.

        Args:
            group: Name of the group.

        Returns:
            Times and bytes; times of events are None without an event.
        """
        directory = stream_directory(self._root, group, name)
        about = _about(directory)
        if about is None:
            return None
        reader = LogReader(directory)
        return LogStream(
            group=group,
            name=name,
            directory=directory,
            created_ms=int(about["created_ms"]),
            of_client=bool(about.get("of_client")),
            first_event_ms=reader.first_event_ms(),
            last_event_ms=reader.last_event_ms(),
            last_ingested_ms=reader.last_ingested_ms(),
            stored_bytes=reader.stored_bytes(),
        )

    def _sorted_names(self, group: Path) -> list[str]:
        """Return the sorted names in a group. The directory is read only if it has changed, and then only new names."""
        try:
            return self._names_now(group, group.stat().st_mtime_ns)
        except FileNotFoundError:
            return []

    def _names_now(self, group: Path, changed_ns: int) -> list[str]:
        # A change in the same clock tick as the last reading would leave the directory's time unchanged. So the time
        # is trusted only if it was old when the directory was read.
        seen = self._listed.get(group)
        if seen is not None and seen[0] == changed_ns:
            return seen[1]
        known = self._names.get(group, {})
        with os.scandir(group) as entries:
            digests = [entry.name for entry in entries if entry.is_dir()]
        present = {digest: known.get(digest) or _name_in(group / digest) for digest in digests}
        self._names[group] = {digest: name for digest, name in present.items() if name is not None}
        names = sorted(self._names[group].values())
        if time.time_ns() - changed_ns > SETTLED_S * 1e9:
            self._listed[group] = (changed_ns, names)
        else:
            self._listed.pop(group, None)
        return names


class _Events:
    """Events of a page that is being filled."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._found: list[tuple[int | None, bytes]] = []
        self._bytes = 0

    def take(self, time_ms: int | None, line: bytes) -> bool:
        """Add a line. Returns False, without adding it, if the page is full. One event always fits."""
        size = len(line) + EVENT_OVERHEAD_BYTES
        if self._found and (len(self._found) >= self._limit or self._bytes + size > PAGE_MAX_BYTES):
            return False
        self._found.append((time_ms, line))
        self._bytes += size
        return True

    def in_order(self, *, backward: bool = False) -> tuple[LogEvent, ...]:
        """Return the decoded events. A damaged line gets the time of the line before, and is shown unchanged."""
        events: list[LogEvent] = []
        latest = 0
        for time_ms, line in reversed(self._found) if backward else self._found:
            latest = time_ms if time_ms is not None else latest
            message = line if time_ms is None else message_of(line)
            ingested_ms = latest if time_ms is None else ingested_of(line)
            events.append(LogEvent(latest, message.decode("utf-8", "replace"), ingested_ms or latest))
        return tuple(events)


def _about(directory: Path) -> dict[str, Any] | None:
    try:
        return read_json(directory / STREAM_FILE)
    except ValueError as error:
        raise StateCorrupt(
            f"{directory / STREAM_FILE} is damaged ({error}); it names a log stream. Remove {directory} to give the"
            " stream up"
        ) from error


def _group_of(directory: Path) -> str | None:
    """Return the name of the group whose streams are in ``directory``; every stream records it."""
    try:
        with os.scandir(directory) as entries:
            found = (_about(Path(entry.path)) for entry in entries if entry.is_dir())
            return next((str(about["group"]) for about in found if about is not None), None)
    except FileNotFoundError:  # it is being removed
        return None


def _name_in(directory: Path) -> str | None:
    about = _about(directory)
    return None if about is None else str(about["stream"])
