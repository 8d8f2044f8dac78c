"""GetLogLines and SearchLogLines: the lines of a log stream by number.

AWS's GetLogEvents goes through a stream page by page, so the line with a given number, or the number of the last line,
would need a read of everything before it.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from tidemill.control.logs.groups import GroupRecords
from tidemill.control.logs.line_search import LINES_MAX, LineSearcher
from tidemill.services.logs.groups import invalid
from tidemill.services.operations import Operations
from tidemill.services.times import when
from tidemill.store.logs.numbered_lines import LineNumbers, NumberedLine
from tidemill.store.logs.streams import LogStreams
from tidemill.wire.exchange import Context

__all__ = ["LogLineOperations"]

_LINES = 200
_MESSAGE_BYTES = 4096


class LogLineOperations(Operations):
    """Read and search lines by number.

    A stream that does not exist has no lines: DescribeJob names the streams of a job before its instances write.

    Args:
        groups: Records of groups, for their retention.
        search_cpu_s: Seconds of CPU that a search may take.
    """

    def __init__(self, streams: LogStreams, groups: GroupRecords, *, search_cpu_s: int) -> None:
        self._streams = streams
        self._groups = groups
        self._numbers = LineNumbers()
        self._searcher = LineSearcher(cpu_s=search_cpu_s)

    async def get_log_lines(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return lines from a number on; a negative number counts from the end."""
        group, name = request["LogGroup"], request["LogStream"]
        page = await asyncio.to_thread(
            self._numbers.page,
            self._streams.directory(group, name),
            first=request.get("FirstLine", -_LINES),
            limit=request.get("MaxLines", _LINES),
            message_max_bytes=request.get("MaxBytes", _MESSAGE_BYTES),
            since_ms=self._groups.shown_from_ms(group),
        )
        return {"Lines": [_wire(each) for each in page.lines], "FirstKept": page.first, "Count": page.count}

    async def search_log_lines(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the numbers of the lines with a text or an expression."""
        group, name, first = request["LogGroup"], request["LogStream"], request.get("FirstLine", 0)
        directory = self._streams.directory(group, name)
        place = await asyncio.to_thread(self._numbers.position_of, directory, first)
        try:
            found = await self._searcher.search(
                directory,
                place,
                number=first,
                text=request["Text"],
                is_regex=request.get("IsRegex", False),
                ignore_case=request.get("IgnoreCase", False),
                limit=request.get("MaxLines", LINES_MAX),
            )
        except ValueError as error:
            raise invalid(str(error)) from error
        return {
            "Lines": list(found.lines),
            "NextLine": found.next_line,
            "IsComplete": found.is_complete,
            "TookTooLong": found.took_too_long,
        }


def _wire(line: NumberedLine) -> dict[str, Any]:
    return {
        "Number": line.number,
        "Message": line.message,
        **({"Time": when(line.time_ms)} if line.time_ms else {}),
        "Bytes": line.size_bytes,
        "IsState": line.is_state,
    }
