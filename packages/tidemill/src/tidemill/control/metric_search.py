"""Finds the last match of each metric's regular expression in a log stream. A program of its own.

    python -m tidemill.control.metric_search DIRECTORY CPU_SECONDS < definitions.json

The expressions are a user's, and Python's engine may need exponential time for one: each gets a limit of CPU time,
at which the kernel ends the program. For each definition, in order, one line of JSON is written as soon as it is
known: ``{"value": 0.25, "at_ms": 1700000000000}``, ``{"text": "nan"}`` for a match that is no finite number, or
``{}`` for no match.
"""

import json
import math
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidemill.store.logs import LogEvent, LogReader

__all__ = ["last_match", "main"]


def last_match(directory: Path, pattern: str) -> dict[str, Any]:
    """Search a stream from its end for the last match of a pattern.

    Args:
        directory: Of the stream.
        pattern: Its first group is the value; the whole match if it has none.
    """
    expression = re.compile(pattern)
    group = min(expression.groups, 1)
    for event in _latest_first(LogReader(directory)):
        found = [match[group] for match in expression.finditer(event.message)]
        if found:
            return _valued(found[-1] or "", event.timestamp_ms)
    return {}


def main() -> None:
    """Answer the definitions on standard input."""
    directory, cpu_s = Path(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the end at the limit is no crash
    for definition in json.load(sys.stdin):
        _limit_cpu(cpu_s)
        sys.stdout.write(json.dumps(last_match(directory, definition["Regex"])) + "\n")
        sys.stdout.flush()


def _limit_cpu(further_s: int) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard_s = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(usage.ru_utime + usage.ru_stime) + further_s, hard_s))


def _latest_first(reader: LogReader) -> Iterator[LogEvent]:
    page = reader.read()
    while page.events:
        yield from reversed(page.events)
        page = reader.read(token=page.backward_token)


def _valued(text: str, at_ms: int) -> dict[str, Any]:
    try:
        value = float(text)
    except ValueError:
        return {"text": text}
    return {"value": value, "at_ms": at_ms} if math.isfinite(value) else {"text": text}


if __name__ == "__main__":
    main()
