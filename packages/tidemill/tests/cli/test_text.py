"""Text for terminals."""

import os
import pty
import subprocess
import sys
import traceback
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.cli.text import age, fitted
from tidemill.core.sizes import size
from tidemill.errors import JobFailed, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext ü 漢字", "plain\ttext ü 漢字"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bcreset", "reset"),
        ("\x9b31mred", "red"),
        ("bell\x07 null\x00 backspace\x08", "bell null backspace"),
        ("10%\r50%\r100%", "100%"),
        ("windows\r", "windows"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("cut short \x1b]0;never ended", "cut short "),
        ("one\n\x1b[2Jtwo\r\nthree\x07", "one\ntwo\nthree"),
    ],
)
def test_escape_sequences_and_controls_are_removed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_the_message_of_an_error_holds_no_control_characters() -> None:
    error = JobFailed("training job x failed:\nValueError: \x1b]0;title\x07\x1b[31mred\x1b[2J")
    assert str(error) == "training job x failed:\nValueError: red"
    assert "\x1b" not in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (59, "59s"), (192, "3m12s"), (7300, "2h1m"), (90_000, "1d1h"), (-5, "0s")]
)
def test_an_age_has_two_units(seconds: int, shown: str) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    assert age(start, until=start + timedelta(seconds=seconds)) == shown


@pytest.mark.parametrize(
    ("size_bytes", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 50, "1024.0 TiB")],
)
def test_a_size_has_a_binary_unit(size_bytes: int, shown: str) -> None:
    assert size(size_bytes) == shown


NAMES = ("tensorflow-training-2026-11-27-08-30-00-123", "tensorflow-training-2026-11-27-09-30-00-456")
PRINT = """
from tidemill.cli.text import print_table
print_table(("JOB", "STATUS", "PHASE", "AGE", "TOOK"), [(%r, "Completed", "MaxRuntimeExceeded", "12m30s", "12m30s")])
"""


def test_long_names_are_cut_in_the_middle_until_a_table_fits() -> None:
    columns = ("JOB", "STATUS", "PHASE", "AGE", "TOOK")
    rows = [(name, "InProgress", "MaxRuntimeExceeded", "12m30s", "12m30s") for name in NAMES]
    for width in (80, 60, 120):
        shown = fitted(columns, rows, width=width)
        widths = [max(map(len, column)) for column in zip(columns, *shown, strict=True)]
        assert sum(widths) + 2 * (len(widths) - 1) <= width
        assert len({row[0] for row in shown}) == 2  # still told apart
        if width == 80:
            assert [row[1:] for row in shown] == [list(row[1:]) for row in rows]
    assert shown == [list(row) for row in rows]
    assert fitted(("A", "LONG TITLE"), [("x" * 50, "y")], width=10) == [["xxxx\u2026xxx", "y"]]


def test_a_table_is_cut_on_a_narrow_terminal_only() -> None:
    program = [sys.executable, "-c", PRINT % NAMES[0]]
    assert NAMES[0] in subprocess.run(program, capture_output=True, text=True, check=True).stdout
    for columns, is_whole in ((80, False), (120, True)):
        ours, theirs = pty.openpty()
        try:
            variables = os.environ | {"COLUMNS": str(columns), "TERM": "xterm"}
            subprocess.run(program, stdout=theirs, env=variables, check=True)
            shown = printable(os.read(ours, 65536).decode())
        finally:
            os.close(ours)
            os.close(theirs)
        lines = [line.rstrip() for line in shown.splitlines()]
        assert len(lines) == 2
        assert max(map(len, lines)) <= columns
        assert (NAMES[0] in shown) is is_whole
