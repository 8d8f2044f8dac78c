"""Find lines of a log stream by text or by a regular expression, as numbers of `store.logs.numbered_lines`.

    python -m tidemill.control.logs.line_search < TASK > ANSWERS

The search is a program of its own (`control.search_process`), which the kernel ends when its CPU time is over. TASK is
a `LineSearch`. ANSWERS are `FoundLines`, one for each block of the log and one at the end.
"""

import asyncio
import contextlib
import json
import re
import resource
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, cast

from tidemill.control.search_process import answers_of
from tidemill.store.logs.blocks import blocks
from tidemill.store.logs.streams import LogPosition

__all__ = ["LINES_MAX", "LineSearcher", "SearchedLines", "main"]

LINES_MAX = 10_000
"""Most lines of one answer."""

_PROGRAM = "tidemill.control.logs.line_search"
_AT_ONCE = 2
_CPU_S = 5


class LineSearch(TypedDict):
    """What to search for.

    Attributes:
        directory: Directory of the stream.
        begin: Segment and offset of the first line to search.
        number: Number of that line.
        pattern: Regular expression that is found in the message.
        literal: Whether the expression is an escaped text.
        ignore_case: Whether case is ignored.
        limit: Most lines.
        cpu_s: Seconds of CPU.
    """

    directory: str
    begin: tuple[int, int]
    number: int
    pattern: str
    literal: bool
    ignore_case: bool
    limit: int
    cpu_s: int


class FoundLines(TypedDict):
    """A part of the answer.

    Attributes:
        lines: Numbers of lines that match, ascending.
        next: Number of the line at which a search goes on.
        end: Whether all lines were searched.
    """

    lines: list[int]
    next: int
    end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedLines:
    """The result of a search.

    Attributes:
        lines: Numbers of the lines that match, ascending.
        next_line: Where a further search begins.
        is_complete: Whether all lines were searched.
        took_too_long: Whether the search ended because of its CPU time.
    """

    lines: tuple[int, ...]
    next_line: int
    is_complete: bool
    took_too_long: bool


class LineSearcher:
    """Runs searches, two at a time.

    Args:
        cpu_s: Seconds of CPU that a search may take.
    """

    def __init__(self, *, cpu_s: int = _CPU_S) -> None:
        self._cpu_s = cpu_s
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
            number: Its number.
            text: The text, or a Python regular expression.
            is_regex: Whether it is an expression.
            ignore_case: Whether case is ignored.
            limit: Most lines.

        Raises:
            ValueError: The expression is not valid.
        """
        pattern = text if is_regex else re.escape(text)
        if is_regex:
            check_expression(text)
        task = LineSearch(
            directory=str(directory),
            begin=(begin.segment, begin.offset),
            number=number,
            pattern=pattern,
            literal=not is_regex,
            ignore_case=ignore_case,
            limit=limit,
            cpu_s=self._cpu_s,
        )
        lines: list[int] = []
        next_line, ended_by, is_complete = number, 0, False
        async with self._running, contextlib.aclosing(answers_of(_PROGRAM, dict(task))) as answers:
            async for answer in answers:
                if "ended_by" in answer:
                    ended_by = answer["ended_by"]
                    continue
                lines += answer["lines"]
                next_line, is_complete = answer["next"], answer["end"]
        return SearchedLines(
            lines=tuple(lines), next_line=next_line, is_complete=is_complete, took_too_long=ended_by < 0
        )


def check_expression(text: str) -> None:
    """Refuse a regular expression that is not valid.

    Args:
        text: The expression.

    Raises:
        ValueError: It is not valid.
    """
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{text[:100]!r} is not a regular expression: {error}") from error


def main() -> None:
    """Perform the task read from standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # being ended at the CPU limit must not write a core file
    task = cast(LineSearch, json.load(sys.stdin))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(usage.ru_utime + usage.ru_stime) + task["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
    number, left = task["number"], task["limit"]
    search = re.compile(task["pattern"], re.IGNORECASE if task["ignore_case"] else 0).search
    for block, _ in blocks(Path(task["directory"]), LogPosition(*task["begin"])):
        text = block.decode("utf-8", "replace")
        ends = text.count("\n") - text.count("\r\n")
        found: list[int] = []
        # A text that is nowhere in a block is in none of its lines.
        if not task["literal"] or search(text):
            found = list(_matching(text, search, number))[: left + 1]
        if len(found) > left:
            _write(FoundLines(lines=found[:left], next=found[left], end=False))
            return
        number, left = number + ends, left - len(found)
        _write(FoundLines(lines=found, next=number, end=False))
    _write(FoundLines(lines=[], next=number, end=True))


def _matching(text: str, search: Callable[[str], object], number: int) -> Iterator[int]:
    for line in text.split("\n")[:-1]:
        if line.endswith("\r"):
            continue
        head, separator, message = line.partition(" ")
        if search(message if separator and head[:1].isdecimal() else line):
            yield number
        number += 1


def _write(answer: FoundLines) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
