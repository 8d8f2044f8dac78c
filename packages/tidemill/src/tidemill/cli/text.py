"""Format output of commands: tables, ages, sizes, and untrusted text made safe for a terminal."""

import contextlib
import json
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import typer

from tidemill.errors import printable

_LEAST_CHARS = 8

_results: TextIO | None = None
"""Where JSON goes while standard output is redirected."""


def age(since: datetime, *, until: datetime | None = None) -> str:
    """Format a duration in its largest two units, e.g. ``3m12s``.

    Args:
        since: Begin of the duration.
        until: Its end. Default: now.

    Returns:
        At least ``0s``.
    """
    seconds = max(0, int(((until or datetime.now(UTC)) - since).total_seconds()))
    units = [("d", 86400), ("h", 3600), ("m", 60), ("s", 1)]
    for index, (letter, length) in enumerate(units[:-1]):
        if seconds >= length:
            below, below_length = units[index + 1]
            return f"{seconds // length}{letter}{seconds % length // below_length}{below}"
    return f"{seconds}s"


def execution_name(execution: Mapping[str, Any]) -> str:
    """Return the name of a pipeline's execution for commands, ``PIPELINE/ID``.

    Args:
        execution: A summary with PipelineExecutionArn.
    """
    _, pipeline, _, execution_id = execution["PipelineExecutionArn"].rsplit("/", 3)
    return f"{pipeline}/{execution_id}"


def print_json(value: Any) -> None:
    """Print a value as JSON; times are in ISO 8601.

    Args:
        value: Dictionaries, lists, and what they hold.

    Raises:
        TypeError: If something has no form in JSON.
    """
    print(json.dumps(value, indent=2, default=_jsonable), file=_results or sys.stdout, flush=True)


def print_json_line(value: Any) -> None:
    """Print a value as JSON in one line, for results that come one after the other.

    Args:
        value: As for `print_json`.
    """
    print(json.dumps(value, default=_jsonable), file=_results or sys.stdout, flush=True)


def print_result(value: Any, *lines: str, json: bool) -> None:
    """Print the result of a command: as JSON for programs, or as lines for people.

    Args:
        value: As for `print_json`.
        *lines: The same for people; text of users made safe.
        json: The option `--json`.
    """
    if json:
        print_json(value)
        return
    for line in lines:
        typer.echo(line)


def print_list(
    value: Any, columns: Sequence[str], rows: Sequence[Sequence[str]], *, nothing: str, wraps: bool = False, json: bool
) -> None:
    """Print the result of a command that lists something: as JSON for programs, or as a table.

    Args:
        value: As for `print_json`.
        columns: Titles.
        rows: The cells.
        nothing: What is printed in place of a table without rows.
        wraps: As for `print_table`.
        json: The option `--json`.
    """
    if json or not rows:
        print_result(value, nothing, json=json)
    else:
        print_table(columns, rows, wraps=wraps)


@contextlib.contextmanager
def only_results() -> Generator[None]:
    """Send everything but JSON that is printed to standard error, e.g. the progress of a job that is awaited."""
    global _results
    earlier, _results = _results, sys.stdout
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _results = earlier


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: bool = False) -> None:
    """Print aligned columns. On a terminal the table fits its width; in a pipe nothing is cut.

    Args:
        columns: Titles.
        wraps: Whether the last column is text, which is wrapped. Otherwise cells are cut in the middle, those of the
            widest columns first: the ends of two names tell them apart.
    """
    shown = [[_cell(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        _print_rich(columns, shown if wraps else fitted(columns, shown, width=width), width=width)
        return
    widths = [max(len(line[i]) for line in [list(columns), *shown]) for i in range(len(columns))]
    for line in [list(columns), *shown]:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def fitted(columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> list[list[str]]:
    """Return rows whose cells are cut in the middle so that a table fits a width, as far as titles allow.

    Args:
        columns: Titles, which are not cut.
        rows: The cells.
        width: Characters of a line. Columns are separated by two.
    """
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    least = [max(len(title), _LEAST_CHARS) for title in columns]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(range(len(widths)), key=lambda index: widths[index] - least[index] > 0 and widths[index])
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return [[_cut(cell, most) for cell, most in zip(row, widths, strict=True)] for row in rows]


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    head = most // 2
    return f"{text[:head]}…{text[len(text) - (most - head - 1) :]}"


def print_members(members: Mapping[str, Any], *, indent: str = "") -> None:
    """Print one member per line, nested members indented; members without a value are left out.

    Args:
        members: A description of the API.
        indent: Begin of every line.
    """
    for name, member in members.items():
        if type(member) in (dict, list) and member:
            typer.echo(f"{indent}{_cell(name)}:")
            below = {str(number): each for number, each in enumerate(member)} if isinstance(member, list) else member
            print_members(below, indent=f"{indent}  ")
        elif member not in (None, "", {}, []):
            first, *rest = _shown_member(member).splitlines() or [""]
            typer.echo(f"{indent}{_cell(name)}: {printable(first)}")
            for line in rest:
                typer.echo(f"{indent}  {printable(line)}")


def _cell(text: str) -> str:
    return printable(text).replace("\n", " ")


def _shown_member(value: object) -> str:
    return f"{value.astimezone():%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), collapse_padding=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    Console(width=width).print(table)


_STYLES = {
    "Completed": "green",
    "InService": "green",
    "ok": "green",
    "InProgress": "cyan",
    "Stopped": "yellow",
    "Stopping": "yellow",
    "warn": "yellow",
    "Failed": "red",
    "fail": "red",
}


def _jsonable(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} cannot be printed as JSON")
