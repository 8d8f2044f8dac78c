"""Run one query over log streams. This runs as a separate program:

    python -m tidemill.control.logs.insights.program < TASK > ANSWER

Users write the regular expressions and choose how much is read. So the kernel limits CPU time and memory, and the
service goes on meanwhile.

TASK is one JSON object, a `QueryTask`; ANSWER is one, too, a `QueryAnswer`.
"""

import json
import resource
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypedDict

from tidemill.control.logs.insights.commands import InsightsQuery
from tidemill.control.logs.insights.values import EventRow, Instant
from tidemill.core.segments import ingested_of
from tidemill.store.logs.streams import LogReader

_BATCH_BYTES = 1024 * 1024
_RESULT_MAX_BYTES = 8 * 1024 * 1024


class QueryTask(TypedDict):
    """What to search. Times are in milliseconds since the epoch, both inclusive.

    Attributes:
        limit: Most events in the result.
        streams: ``@log``, name and directory of each stream, and the time since which it is shown.
        cpu_s: Seconds of CPU after which the kernel ends the program.
        memory_bytes: Memory that the program may use.
    """

    query: str
    limit: int
    start_ms: int
    end_ms: int
    streams: Sequence[tuple[str, str, str, int]]
    cpu_s: int
    memory_bytes: int


class QueryAnswer(TypedDict):
    """The result.

    Attributes:
        rows: Names and values of the fields of each event or group.
        skipped: Number of events of the result that were left out, because it would be larger than 8 MiB.
        matched: Number of events that the filters kept.
        scanned: Number of events between the times.
        scanned_bytes: Bytes of these events.
    """

    rows: list[list[tuple[str, str]]]
    skipped: int
    matched: int
    scanned: int
    scanned_bytes: int


def main() -> None:
    """Perform the task read from standard input."""
    task: QueryTask = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (task["cpu_s"], resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (task["memory_bytes"], resource.RLIM_INFINITY))
    query = InsightsQuery.parse(task["query"], limit=task["limit"])
    events = _ScannedEvents(task)
    answer = QueryAnswer(rows=[], skipped=0, matched=0, scanned=0, scanned_bytes=0)
    size_bytes = 0
    for row in query.run(events):
        size_bytes += sum(len(name) + len(value) for name, value in row)
        if size_bytes > _RESULT_MAX_BYTES:
            answer["skipped"] += 1
        else:
            answer["rows"].append(row)
    answer |= {"matched": query.matched.rows, "scanned": events.scanned, "scanned_bytes": events.scanned_bytes}
    json.dump(answer, sys.stdout)


class _ScannedEvents:
    """The events between the times, stream by stream."""

    def __init__(self, task: QueryTask) -> None:
        self._task = task
        self.scanned = 0
        self.scanned_bytes = 0

    def __iter__(self) -> Iterator[EventRow]:
        for log, name, directory, shown_from_ms in self._task["streams"]:
            yield from self._of(LogReader(Path(directory)), log, name, max(shown_from_ms, self._task["start_ms"]))

    def _of(self, reader: LogReader, log: str, name: str, start_ms: int) -> Iterator[EventRow]:
        place = reader.find(start_ms)
        at_ms = start_ms
        while lines := reader.lines(place, max_bytes=_BATCH_BYTES):
            for line in lines:
                at_ms = at_ms if line.time_ms is None else line.time_ms
                if at_ms > self._task["end_ms"]:
                    return
                self.scanned += 1
                self.scanned_bytes += len(line.data)
                yield EventRow(
                    {
                        "@timestamp": Instant(at_ms),
                        "@message": line.message.decode("utf-8", "replace"),
                        "@logStream": name,
                        "@log": log,
                        "@ingestionTime": Instant(ingested_of(line.data) or at_ms),
                    }
                )
            place = lines[-1].end


if __name__ == "__main__":
    main()
