"""Find the values of metrics in a log stream. This runs as a separate program:

    python -m tidemill.control.training.metric_search < TASK > ANSWERS

Users write the expressions, and Python's engine may need exponential time for one. Each expression has a limit of CPU
time per piece of the log. At the limit the kernel ends the program; the results of earlier pieces are already written.

TASK is one JSON object: ``directory`` of the stream; ``expressions``, each under a number chosen by the caller;
``cpu_s``; ``order``, which is ``forward`` or ``latest``; and for ``forward`` a cursor: ``begin`` as (segment, offset),
and ``state``. ANSWERS are JSON objects, one per line: ``{"searches": NUMBER}`` before an expression is searched, and a
`FoundMatches` for each finished piece of the log. ``latest`` reads backward from the end of the stream until each
expression has matched.
"""

import json
import math
import re
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from tidemill.store.logs.blocks import blocks, blocks_backward
from tidemill.store.logs.streams import LogPosition

# An expression such as `.*loss: (.*)` takes time quadratic in the length of a line.
_SEARCHED_CHARACTERS = 8 * 1024


class FoundMatches(TypedDict):
    """Matches in one piece of the log.

    Attributes:
        found: For each expression that matched: times in milliseconds since the epoch, and values, in the log's order.
        texts: For each expression whose latest match is not a finite number: the text of that match.
        end: Position after the piece: segment and offset.
        state: Latest state of a progress bar, with which `_once` continues.
    """

    found: dict[int, tuple[list[int], list[float]]]
    texts: dict[int, str]
    end: tuple[int, int]
    state: str


_Line = tuple[str, str]
"""Milliseconds since the epoch (unparsed, because most lines match nothing) and the message."""
_Match = tuple[int, str]
"""Milliseconds since the epoch, and the text of the value."""


def main() -> None:
    """Perform the task read from standard input."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # being ended at the CPU limit must not write a core file
    task = json.load(sys.stdin)
    directory, cpu_s = Path(task["directory"]), task["cpu_s"]
    expressions = {int(number): re.compile(text) for number, text in task["expressions"].items()}
    if task["order"] == "latest":
        _search_latest(directory, expressions, cpu_s=cpu_s)
    else:
        _search_forward(directory, expressions, LogPosition(*task["begin"]), task["state"], cpu_s=cpu_s)


def _search_forward(
    directory: Path, expressions: Mapping[int, re.Pattern[str]], begin: LogPosition, state: str, *, cpu_s: int
) -> None:
    for block, end in blocks(directory, begin):
        lines, state = _once(_lines(block), state)
        answer = FoundMatches(found={}, texts={}, end=(end.segment, end.offset), state=state)
        for number, expression in _limited(expressions, cpu_s=cpu_s):
            _collect(answer, number, _matches(expression, lines))
        _write_line(answer)


def _search_latest(directory: Path, expressions: Mapping[int, re.Pattern[str]], *, cpu_s: int) -> None:
    missing = dict(expressions)
    for block in blocks_backward(directory):
        lines = _lines(block)
        lines.reverse()
        answer = FoundMatches(found={}, texts={}, end=(0, 0), state="")
        for number, expression in _limited(dict(missing), cpu_s=cpu_s):
            latest = next(_matches(expression, lines), None)
            if latest is not None:
                _collect(answer, number, (latest,))
                del missing[number]
        _write_line(answer)
        if not missing:
            return


def _lines(block: bytes) -> list[_Line]:
    """Split a block into lines. `_matches` drops damaged lines, whose time is not a number."""
    parts = (line.partition(" ") for line in block.decode("utf-8", "replace").split("\n")[:-1])
    return [(head, message[:_SEARCHED_CHARACTERS]) for head, _, message in parts]


def _once(lines: list[_Line], state: str) -> tuple[list[_Line], str]:
    """Return the lines with each state of a progress bar once, without its carriage return, and the latest state.

    A state that was logged while the bar was moving is logged again as a line when the bar ends
    (`tidemill.shim.lines`), possibly after lines of the other output stream.
    """
    if not state and not any(text.endswith("\r") for _, text in lines):
        return lines, state
    kept: list[_Line] = []
    for head, text in lines:
        if text.endswith("\r"):
            state = text[:-1]
            kept.append((head, state))
        elif state and text == state:
            state = ""
        else:
            kept.append((head, text))
    return kept, state


def _limited(expressions: Mapping[int, re.Pattern[str]], *, cpu_s: int) -> Iterator[tuple[int, re.Pattern[str]]]:
    """Yield each expression after announcing it on standard output and setting its CPU limit."""
    for number, expression in expressions.items():
        usage = resource.getrusage(resource.RUSAGE_SELF)
        hard_s = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(usage.ru_utime + usage.ru_stime) + cpu_s, hard_s))
        _write_line({"searches": number})
        yield number, expression


def _matches(expression: re.Pattern[str], lines: Iterable[_Line]) -> Iterator[_Match]:
    """Yield the first match of each line: its first group, or the whole match if the expression has no group."""
    group, search = min(expression.groups, 1), expression.search
    for head, text in lines:
        match = search(text)
        if match is not None and head.isdecimal():
            yield int(head), match[group] or ""


def _collect(answer: FoundMatches, number: int, matches: Iterable[_Match]) -> None:
    times: list[int] = []
    values: list[float] = []
    latest: str | None = None
    for at_ms, text in matches:
        value = _number(text)
        latest = text if value is None else None
        if value is not None:
            times.append(at_ms)
            values.append(value)
    if latest is not None:
        answer["texts"][number] = latest
    if times:
        answer["found"][number] = times, values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _write_line(message: Any) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
