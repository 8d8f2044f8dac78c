"""Searches of log lines by number, each in a process (`control.logs.line_scan`)."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path

from tidemill.control.logs.line_scan import LineSearch
from tidemill.control.search_process import answers_of
from tidemill.store.logs.streams import LogPosition

LINES_MAX = 10_000
"""Most lines of one answer."""

_PROGRAM = "tidemill.control.logs.line_scan"
_AT_ONCE = 2
_MEMORY_BYTES = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedLines:
    """The result of a search.

    Attributes:
        lines: Numbers of the lines that match, ascending.
        next_line: Where a further search begins.
        is_complete: Whether all lines were searched.
        took_too_long: Whether the search ended because of its CPU time or memory.
    """

    lines: tuple[int, ...]
    next_line: int
    is_complete: bool
    took_too_long: bool


class LineSearcher:
    """Runs searches, two at a time.

    Args:
        cpu_s: Seconds of CPU that a search may take.
        memory_bytes: Memory that it may take. Default: 1 GiB.
    """

    def __init__(self, *, cpu_s: int, memory_bytes: int = _MEMORY_BYTES) -> None:
        self._cpu_s = cpu_s
        self._memory_bytes = memory_bytes
        self._running = asyncio.Semaphore(_AT_ONCE)

    async def search(
        self,
        directory: Path,
        begin: LogPosition,
        *,
        number: int,
        text: str,
        is_regex: bool = False,
        ignore_case: bool = False,
        limit: int = LINES_MAX,
    ) -> SearchedLines:
        """Search from a line on. Lines that a later one can still overwrite are not searched.

        Args:
            directory: Of the stream.
            begin: Position of the first line.
            text: The text, or a Python regular expression.
            is_regex: Whether it is an expression.
            ignore_case: Whether case is ignored.
            limit: Most lines.

        Raises:
            ValueError: The expression is not valid.
        """
        task = LineSearch(
            directory=str(directory),
            begin=(begin.segment, begin.offset),
            number=number,
            text=text,
            is_regex=is_regex,
            ignore_case=ignore_case,
            limit=limit,
            cpu_s=self._cpu_s,
            memory_bytes=self._memory_bytes,
        )
        lines: list[int] = []
        next_line, ended_by, is_complete = number, 0, False
        async with self._running, contextlib.aclosing(answers_of(_PROGRAM, dict(task))) as answers:
            async for answer in answers:
                if "invalid" in answer:
                    raise ValueError(f"{text[:100]!r} is not a regular expression: {answer['invalid']}")
                if "ended_by" in answer:
                    ended_by = answer["ended_by"]
                    continue
                lines += answer["lines"]
                next_line, is_complete = answer["next"], answer["end"]
        return SearchedLines(
            lines=tuple(lines), next_line=next_line, is_complete=is_complete, took_too_long=ended_by != 0
        )
