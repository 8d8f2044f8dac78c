"""The streams that clients write: create, append, remove.

They are segments as those of jobs, but written by the service. Clients may put an event that is earlier than others of
its stream: its segment is then replaced by one that has the event at its place, so segments are smaller than those of
jobs. The last segment is split if it would become too large.
"""

import os
import threading
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from tidemill.core import faults
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
from tidemill.store.logs.streams import LogReader

_SEGMENT_BYTES = 4 * 1024 * 1024

_Stored = tuple[int, bytes]
"""Milliseconds since the epoch, and the stored line with its LF."""


class PutStreams:
    """Writes streams of clients, and removes streams. May be used from several threads.

    Args:
        root: Directory of all logs.
        clock: Source of the times of creation.
        segment_bytes: Size of a segment.
    """

    def __init__(self, root: Path, *, clock: Clock, segment_bytes: int = _SEGMENT_BYTES) -> None:
        self._root = root
        self._clock = clock
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()

    def create(self, group: str, name: str) -> bool:
        """Create a stream durably. Returns False, and changes nothing, if there is one of that name.

        Args:
            group: Name of the group.
            name: Name of the stream.
        """
        with self._lock:
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
        directory = stream_directory(self._root, group, name)
        with self._lock:
            if not (read_json(directory / STREAM_FILE) or {}).get("of_client"):
                return False
            _complete_split(directory)
            last_ms = LogReader(directory).last_event_ms() or 0
            late = sum(at_ms < last_ms for at_ms, _ in lines)
            if late:
                _insert(directory, lines[:late], segment_bytes=self._segment_bytes)
            if lines[late:]:
                with SegmentWriter(directory, segment_bytes=self._segment_bytes) as writer:
                    writer.write_stored(b"".join(line for _, line in lines[late:]))
            return True

    def remove(self, group: str, name: str) -> None:
        """Remove the stream of a client or of an ended job, if it exists.

        Args:
            group: Name of the group.
            name: Name of the stream.
        """
        with self._lock:
            _remove(stream_directory(self._root, group, name))

    def remove_group(self, group: str) -> None:
        """Remove the directory of a group, if it has no streams.

        Args:
            group: Name of the group.
        """
        directory = group_directory(self._root, group)
        with self._lock:
            if directory.is_dir() and not any(directory.iterdir()):
                directory.rmdir()

    def expire(self, group: str, name: str, *, before_ms: int, unused_before_ms: int) -> None:
        """Remove the segments of a client's stream whose events are all too old, and a stream that is empty for long.

        Args:
            before_ms: Earlier events are too old, in milliseconds since the epoch.
            unused_before_ms: An empty stream that was not written since then is removed.
        """
        directory = stream_directory(self._root, group, name)
        with self._lock:
            numbers = segments_of(directory)
            expired = list(takewhile(lambda number: _last_ms(segment_path(directory, number)) < before_ms, numbers))
            if len(expired) == len(numbers):
                if all(path.stat().st_mtime < unused_before_ms / 1000 for path in directory.iterdir()):
                    _remove(directory)
                    return
                # An empty segment stays, because its number must not be used again: readers have tokens.
                if expired and segment_path(directory, expired[-1]).stat().st_size:
                    segment_path(directory, expired[-1] + 1).touch(mode=0o600)
                else:
                    expired = expired[:-1]
            for number in expired:
                segment_path(directory, number).unlink()


def _remove(directory: Path) -> None:
    if not directory.is_dir():
        return
    # Its description last: what a kill leaves is a stream, which can be removed again.
    for path in sorted(directory.iterdir(), key=lambda path: path.name == STREAM_FILE):
        path.unlink()
    directory.rmdir()
    sync_directory(directory.parent)


def _last_ms(path: Path) -> int:
    """Return the time of a segment's last line; 0 without one."""
    with SegmentFile(path) as file:
        return next((time for _, line in file.lines_before(file.end) if (time := time_of(line)) is not None), 0)


def _insert(directory: Path, late: Sequence[_Stored], *, segment_bytes: int) -> None:
    """Insert lines at their places among those that are stored."""
    numbers = segments_of(directory)
    for number in numbers:
        path, following = segment_path(directory, number), segment_path(directory, number + 1)
        is_full = path.stat().st_size > segment_bytes
        if number == numbers[-1]:
            own = late
        else:
            # What is between two segments goes to the second one if the first one is full.
            until_ms = _last_ms(path) if is_full else _first_ms(following)
            own = [each for each in late if each[0] < until_ms]
        if own:
            late = late[len(own) :]
            _merge(path, own, split=following if is_full and number == numbers[-1] else None)
            # Searches look again at a stream whose last segment has changed.
            os.utime(segment_path(directory, numbers[-1]))


def _first_ms(path: Path) -> int:
    """Return the time of a segment's first line; 0 without one."""
    with SegmentFile(path) as file:
        return next((time for _, line in file.lines(0) if (time := time_of(line)) is not None), 0)


def _merge(path: Path, added: Sequence[_Stored], *, split: Path | None) -> None:
    """Replace a segment by one that also has ``added``, each line behind those of its time.

    Args:
        path: The segment.
        added: Sorted by time.
        split: The segment to which ``added`` and all later lines go, if any line is earlier. Default: none.
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
    data = b"".join(line for _, line in merged)
    if split is None or not head:
        write_durably(path, head + data)
    else:
        write_durably(split, data)
        faults.point("put_streams.split")
        _truncate(path, begin)


def _complete_split(directory: Path) -> None:
    """Remove from the last segment but one what a killed service has copied to the last one.

    All of that is later than the first line of the copy, which was added then.
    """
    numbers = segments_of(directory)[-2:]
    if len(numbers) == 2:
        path, first_ms = segment_path(directory, numbers[0]), _first_ms(segment_path(directory, numbers[1]))
        if 0 < first_ms < _last_ms(path):
            with SegmentFile(path) as file:
                begin = file.find(first_ms + 1)
            _truncate(path, begin)


def _truncate(path: Path, size_bytes: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size_bytes)
        os.fsync(file.fileno())
