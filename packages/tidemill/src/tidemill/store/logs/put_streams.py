"""The streams that clients write: create, append, remove.

They are segments as those of jobs, but written by the service. Clients may put an event that is earlier than others of
its stream: its segment is then replaced by one that has the event at its place, so segments are smaller than those of
jobs. A full segment is not, but gets others beside it.
"""

import contextlib
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path

from tidemill.core.clock import Clock
from tidemill.core.files import read_json, sync_directory, write_durably
from tidemill.core.segments import (
    STREAM_FILE,
    SegmentWriter,
    create_stream,
    group_directory,
    segment_path,
    segments_of,
    stream_directory,
    time_of,
)
from tidemill.store.logs.segment_file import SegmentFile
from tidemill.store.logs.splits import SEGMENT_STEP, SegmentSplits, number_after
from tidemill.store.logs.streams import LogReader

_SEGMENT_BYTES = 4 * 1024 * 1024
_LOCKS = 64

_Stored = tuple[int, bytes]
"""Milliseconds since the epoch, and the stored line with its LF."""


class PutStreams:
    """Writes streams of clients, and removes streams. May be used from several threads; completes interrupted splits.

    Args:
        root: Directory of all logs.
        clock: Source of the times of creation.
        segment_bytes: Size of a segment.
    """

    def __init__(self, root: Path, *, clock: Clock, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self._root = root
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._splits = SegmentSplits(root)
        self._splits.complete_all()
        # Of streams, by the hash of their names; and of the directories of groups, which is taken last.
        self._locks = tuple(threading.Lock() for _ in range(_LOCKS))
        self._groups_lock = threading.Lock()

    def create(self, group: str, name: str) -> bool:
        """Create a stream durably. Returns False, and changes nothing, if there is one of that name.

        Args:
            group: Name of the group.
        """
        with self._groups_lock:
            if (stream_directory(self._root, group, name) / STREAM_FILE).exists():
                return False
            create_stream(self._root, group, name, clock=self._clock, of_client=True)
            return True

    def append(self, group: str, name: str, lines: Sequence[_Stored]) -> bool:
        """Store lines durably. Returns False, and stores none, if clients have no stream of that name.

        Args:
            lines: Sorted by time.

        Raises:
            OSError: They could not be stored, or not all of them.
        """
        with self._writing(group, name) as directory:
            if not (read_json(directory / STREAM_FILE) or {}).get("of_client"):
                return False
            last_ms = LogReader(directory).last_event_ms() or 0
            late = sum(at_ms < last_ms for at_ms, _ in lines)
            if late:
                self._insert(directory, lines[:late])
            if lines[late:]:
                with SegmentWriter(directory, segment_bytes=self._segment_bytes, step=SEGMENT_STEP) as writer:
                    written = segments_of(directory)[-1]
                    writer.write_stored(b"".join(line for _, line in lines[late:]))
                if segments_of(directory)[-1] != written:
                    _touch(segment_path(directory, written))
            return True

    def remove(self, group: str, name: str) -> None:
        """Remove the stream of a client or of an ended job, if it exists.

        Args:
            group: Name of the group.
        """
        with self._writing(group, name) as directory:
            self._remove(directory)

    def remove_group(self, group: str) -> None:
        """Remove the directory of a group, if it has no streams.

        Args:
            group: Name of the group.
        """
        directory = group_directory(self._root, group)
        with self._groups_lock:
            if directory.is_dir() and not any(directory.iterdir()):
                directory.rmdir()

    def expire(self, group: str, name: str, *, before_ms: int, unused_before_ms: int) -> None:
        """Remove the segments of a client's stream whose events are all too old, and a stream that is empty for long.

        Args:
            before_ms: Earlier events are too old, in milliseconds since the epoch.
            unused_before_ms: An empty stream that was not written since then is removed.
        """
        with self._writing(group, name) as directory:
            if not directory.is_dir():  # a client has deleted it meanwhile
                return
            numbers = segments_of(directory)
            expired = list(takewhile(lambda number: _last_ms(segment_path(directory, number)) < before_ms, numbers))
            if len(expired) == len(numbers):
                if all(path.stat().st_mtime < unused_before_ms / 1000 for path in directory.iterdir()):
                    self._remove(directory)
                    return
                # An empty segment stays, because its number must not be used again: readers have tokens.
                if expired and segment_path(directory, expired[-1]).stat().st_size:
                    segment_path(directory, expired[-1] + 1).touch(mode=0o600)
                else:
                    expired = expired[:-1]
            for number in expired:
                segment_path(directory, number).unlink()

    @contextlib.contextmanager
    def _writing(self, group: str, name: str) -> Generator[Path]:
        """Return the directory of a stream that nobody else changes meanwhile, and that has no interrupted split."""
        directory = stream_directory(self._root, group, name)
        with self._locks[int(directory.name, 16) % _LOCKS]:
            self._splits.complete(directory)
            yield directory

    def _remove(self, directory: Path) -> None:
        with self._groups_lock:
            if not directory.is_dir():
                return
            # Its description last: what a kill leaves is a stream, which can be removed again.
            for path in sorted(directory.iterdir(), key=lambda path: path.name == STREAM_FILE):
                path.unlink()
            directory.rmdir()
            sync_directory(directory.parent)

    def _insert(self, directory: Path, late: Sequence[_Stored]) -> None:
        """Insert lines at their places among those that are stored."""
        last = segment_path(directory, segments_of(directory)[-1])
        while late:
            number, following, own = _first_place(directory, late)
            place, size_bytes = _place_in(segment_path(directory, number), own[0][0])
            if size_bytes > self._segment_bytes and 0 < place < size_bytes:
                self._splits.split(directory, number, at=place)
                continue
            if size_bytes > self._segment_bytes:
                number = self._beside(directory, number if place else 0, following)
            _merge(segment_path(directory, number), own)
            late = late[len(own) :]
        if last.exists():  # else it got another number, which searches notice
            _touch(last)

    def _beside(self, directory: Path, number: int, following: int | None) -> int:
        """Return the segment for lines behind a full one, or before all: the following one unless it is full, too."""
        if number and following is not None:
            path = segment_path(directory, following)
            if path.stat().st_size <= self._segment_bytes:
                return following
        return number_after(directory, number)


def _place_in(path: Path, late_ms: int) -> tuple[int, int]:
    """Return the place of a late event in a segment, and the segment's size."""
    with SegmentFile(path) as file:
        return file.find(late_ms + 1), file.end


def _first_place(directory: Path, late: Sequence[_Stored]) -> tuple[int, int | None, Sequence[_Stored]]:
    """Return the number of the segment of the first line, that of the next one, and the lines that belong there."""
    numbers = segments_of(directory)
    first_times = partial(_first_ms, directory)
    with SegmentFile(segment_path(directory, numbers[-1])) as file:
        # A kill or a full disk between the beginning of a segment and its first line leaves one without a line.
        with_lines = numbers[:-1] if len(numbers) > 1 and not file.end else numbers
    later = bisect_right(with_lines, late[0][0], key=first_times)
    place = max(0, later - 1)
    following = next(iter(numbers[place + 1 :]), None)
    if later == len(with_lines):
        return numbers[place], following, late
    until_ms = first_times(numbers[later])
    return numbers[place], following, list(takewhile(lambda each: each[0] < until_ms, late))


def _touch(path: Path) -> None:
    """Let searches look again at a stream, of which this is the last segment that they know."""
    changed_ns = path.stat().st_mtime_ns + 1  # more than one change may be in a tick of the clock
    os.utime(path, ns=(changed_ns, max(changed_ns, time.time_ns())))


def _last_ms(path: Path) -> int:
    """Return the time of a segment's last line; 0 without one."""
    with SegmentFile(path) as file:
        return next((time for _, line in file.lines_before(file.end) if (time := time_of(line)) is not None), 0)


def _first_ms(directory: Path, number: int) -> int:
    """Return the time of a segment's first line; 0 without one."""
    with SegmentFile(segment_path(directory, number)) as file:
        return next((time for _, line in file.lines(0) if (time := time_of(line)) is not None), 0)


def _merge(path: Path, added: Sequence[_Stored]) -> None:
    """Replace a segment by one that also has ``added``, each line behind those of its time.

    Args:
        path: The segment.
        added: Sorted by time.
    """
    with SegmentFile(path) as file:
        begin = file.find(added[0][0] + 1)
        head, tail = file.read(0, begin), file.read(begin, file.end)
    present: list[_Stored] = []
    latest_ms = 0
    for line in tail.split(b"\n")[:-1]:
        latest_ms = max(latest_ms, time_of(line) or 0)
        present.append((latest_ms, line + b"\n"))
    merged = sorted([*present, *added], key=lambda each: each[0])  # stable: what was stored first comes first
    write_durably(path, head + b"".join(line for _, line in merged))
