"""Run `metric_search` in a process; if an expression takes too long, run it again without that expression."""

import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tidemill.control.search_process import answers_of

CPU_S = 5
"""Seconds of CPU that an expression may take for a piece of the log. Ordinary expressions take milliseconds."""

_PROGRAM = "tidemill.control.training.metric_search"


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position at which a search continues.

    Attributes:
        segment: Number of the log segment; 0 before the first one.
        offset: Offset in the segment, in bytes.
        state: Last state of a progress bar, which the log may repeat as a line; else empty.
    """

    segment: int = 0
    offset: int = 0
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Matches in a piece of the log. The keys are the numbers of the expressions.

    Attributes:
        cursor: Position after the piece.
        found: Times in milliseconds since the epoch and values, in the order of the log.
        texts: The latest match of an expression, if it is not a finite number.
        given_up: Reasons why expressions are no longer searched.
    """

    cursor: Cursor
    found: Mapping[int, tuple[list[int], list[float]]] = field(default_factory=dict)
    texts: Mapping[int, str] = field(default_factory=dict)
    given_up: Mapping[int, str] = field(default_factory=dict)


async def search_metrics(
    directory: Path,
    expressions: Mapping[int, str],
    *,
    order: Literal["forward", "latest"],
    cursor: Cursor | None = None,
    cpu_s: int = CPU_S,
) -> AsyncGenerator[Piece]:
    """Search a log stream in a separate process, which ends with the iteration.

    Args:
        expressions: Python regular expressions, each under a number.
        order: ``forward`` finds every match from the cursor to the end; ``latest`` the last match of each expression.
        cursor: Start position; None starts at the beginning.
        cpu_s: Seconds of CPU that each expression may take for a piece.

    Yields:
        Results in the order of the search, one per piece of the log, and one for each expression given up.
    """
    cursor, waiting = cursor or Cursor(), dict(expressions)
    while waiting:
        task = {"directory": str(directory), "expressions": waiting, "order": order, "cpu_s": cpu_s}
        task |= {"begin": (cursor.segment, cursor.offset), "state": cursor.state}
        searched = None
        async with contextlib.aclosing(answers_of(_PROGRAM, task)) as answers:
            async for answer in answers:
                if "ended_by" in answer:
                    yield Piece(
                        cursor=cursor,
                        given_up=_expressions_given_up(searched, waiting, answer["ended_by"], cpu_s=cpu_s),
                    )
                    waiting.pop(searched, None) if searched is not None else waiting.clear()
                    break
                if "searches" in answer:
                    searched = answer["searches"]
                    continue
                piece = _piece(answer)
                cursor = piece.cursor
                if order == "latest":
                    for number in (*piece.found, *piece.texts):
                        waiting.pop(number, None)
                yield piece
            else:
                return


def _piece(answer: Mapping[str, Any]) -> Piece:
    segment, offset = answer["end"]
    return Piece(
        cursor=Cursor(segment, offset, answer["state"]),
        found={int(number): (times, values) for number, (times, values) in answer["found"].items()},
        texts={int(number): text for number, text in answer["texts"].items()},
    )


def _expressions_given_up(
    searched: int | None, waiting: Mapping[int, str], status: int, *, cpu_s: int
) -> dict[int, str]:
    """Return the expressions to give up, with the reason: the one searched last, or all if none was searched."""
    reason = f"its regular expression took more than {cpu_s} s" if status < 0 else "the search failed"
    return {searched: reason} if searched is not None else dict.fromkeys(waiting, reason)
