"""Time spans of the events of each log stream, so that a search can skip streams without opening them."""

import os
from dataclasses import dataclass
from pathlib import Path

from tidemill.core.segments import segment_path, segments_of
from tidemill.store.logs.streams import LogReader


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Times of the first and the last event of a stream."""

    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class _Seen:
    """A span, and the state of the stream's last segment when it was read. If that has changed, the span is outdated.

    Paths are text here: every stream of a group is looked up for every page, and making a Path takes longer than that.
    """

    span: LogSpan
    last: str
    stamp: tuple[int, int]
    following: str

    @property
    def is_current(self) -> bool:
        return _stamp(self.last) == self.stamp and _stamp(self.following) is None


class StreamSpans:
    """Spans of streams. A stream is read again only when its last segment has changed."""

    def __init__(self) -> None:
        self._seen: dict[Path, _Seen] = {}

    def of(self, directory: Path) -> LogSpan | None:
        """Return the span of the stream in ``directory``, or None if it has no event."""
        seen = self._seen.get(directory)
        if seen is not None and seen.is_current:
            return seen.span
        return self._look(directory)

    def _look(self, directory: Path) -> LogSpan | None:
        number = max(segments_of(directory), default=1)
        last, following = (os.fspath(segment_path(directory, each)) for each in (number, number + 1))
        # The stamp is taken before reading, so that anything written during the reading changes it.
        stamp = _stamp(last)
        reader = LogReader(directory)
        first_ms = reader.first_event_ms()  # a late event that a client puts may be earlier than all others
        last_ms = reader.last_event_ms()
        if stamp is None or first_ms is None or last_ms is None:
            return None
        self._seen[directory] = _Seen(LogSpan(first_ms, last_ms), last, stamp, following)
        return self._seen[directory].span


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns
