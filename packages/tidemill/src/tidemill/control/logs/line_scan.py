"""Find lines of a log stream by text or by a regular expression, as numbers of `store.logs.numbered_lines`.

    python -m tidemill.control.logs.line_scan < TASK > ANSWERS

The kernel ends the program when its CPU time is over; it ends itself when it has no more memory. TASK is a
`LineSearch`. ANSWERS are `FoundLines`, one for each block of the log and one at the end; or `InvalidExpression`.
"""

import json
import re
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypedDict, cast

from tidemill.store.logs.blocks import blocks
from tidemill.store.logs.streams import LogPosition


class LineSearch(TypedDict):
    """What to search for.

    Attributes:
        directory: Directory of the stream.
        begin: Segment and offset of the first line to search.
        text: What is found in the message.
        is_regex: Whether that is a regular expression.
        ignore_case: Whether case is ignored.
        limit: Most lines.
        cpu_s: Seconds of CPU.
        memory_bytes: Memory: an expression with many groups can take gigabytes for one line.
    """

    directory: str
    begin: tuple[int, int]
    number: int
    text: str
    is_regex: bool
    ignore_case: bool
    limit: int
    cpu_s: int
    memory_bytes: int


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


class InvalidExpression(TypedDict):
    """The answer to a text that is no regular expression; compiling one can take seconds, too.

    Attributes:
        invalid: What is wrong with it.
    """

    invalid: str


def main() -> None:
    """Perform the task read from standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # being ended at the CPU limit must not write a core file
    task = cast(LineSearch, json.load(sys.stdin))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = int(usage.ru_utime + usage.ru_stime) + task["cpu_s"]
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_AS, (task["memory_bytes"], task["memory_bytes"]))
    is_lowered = task["ignore_case"] and not task["is_regex"]
    try:
        matches = _matcher(task)
    except (re.error, RecursionError, OverflowError) as error:
        _write(InvalidExpression(invalid=str(error)))
        return
    number, left = task["number"], task["limit"]
    for block, _ in blocks(Path(task["directory"]), LogPosition(*task["begin"])):
        text = block.decode("utf-8", "replace")
        ends = text.count("\n") - text.count("\r\n")
        if is_lowered:
            text = text.lower()  # for all lines at once
        found: list[int] = []
        # A text that is nowhere in a block is in none of its lines.
        if task["is_regex"] or matches(text):
            found = list(_matching(text, matches, number))[: left + 1]
        if len(found) > left:
            _write(FoundLines(lines=found[:left], next=found[left], end=False))
            return
        number, left = number + ends, left - len(found)
        _write(FoundLines(lines=found, next=number, end=False))
    _write(FoundLines(lines=[], next=number, end=True))


def _matcher(task: LineSearch) -> Callable[[str], object]:
    if task["is_regex"]:
        return re.compile(task["text"], re.IGNORECASE if task["ignore_case"] else 0).search
    text = task["text"].lower() if task["ignore_case"] else task["text"]
    return lambda message: text in message


def _matching(text: str, matches: Callable[[str], object], number: int) -> Iterator[int]:
    for line in text.split("\n")[:-1]:
        if line.endswith("\r"):
            continue
        head, separator, message = line.partition(" ")
        if matches(message if separator and head[:1].isdecimal() else line):
            yield number
        number += 1


def _write(answer: FoundLines | InvalidExpression) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
