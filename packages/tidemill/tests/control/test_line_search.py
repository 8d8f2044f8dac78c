"""Searches of log lines: in a process, which a regular expression without end cannot keep."""

import asyncio
import re
from pathlib import Path

import pytest

from tidemill.control.logs.line_search import LineSearcher, SearchedLines
from tidemill.core.segments import SegmentWriter, create_stream
from tidemill.store.logs.numbered_lines import LineNumbers

MESSAGES = [
    b"epoch 1",
    b"loss: 0.5",
    b"10%\r",
    b"20% loss\r",
    b"100% LOSS",
    b"a.c",
    b"abc",
    b"a" * 40 + b"b",
    b"50% loss\r",
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = create_stream(tmp_path_factory.mktemp("logs"), "/aws/sagemaker/TrainingJobs", "digits/algo-1-1")
    with SegmentWriter(directory, segment_bytes=200) as writer:
        for message in MESSAGES:
            writer.write(message)
    return directory


def found(directory: Path, text: str, *, first: int = 0, cpu_s: int = 5, **arguments: bool | int) -> SearchedLines:
    place = LineNumbers().position_of(directory, first)
    return asyncio.run(LineSearcher(cpu_s=cpu_s).search(directory, place, number=first, text=text, **arguments))


def test_searches_find_the_numbers_of_lines(directory: Path) -> None:
    assert found(directory, "loss").lines == (1,), "states that were overwritten, or can be, are no lines"
    assert found(directory, "loss", ignore_case=True).lines == (1, 2)
    assert found(directory, "a.c").lines == (3,)
    assert found(directory, "a.c", is_regex=True).lines == (3, 4)
    assert found(directory, "^(epoch|abc)$", is_regex=True).lines == (4,)
    assert found(directory, r"\d{10}", is_regex=True).lines == (), "times are no part of a line"
    whole = found(directory, "no line has this")
    assert whole == SearchedLines(lines=(), next_line=6, is_complete=True, took_too_long=False)


def test_a_search_goes_on_where_it_stopped(directory: Path) -> None:
    part = found(directory, "a", limit=1)
    assert (part.lines, part.next_line, part.is_complete) == ((3,), 4, False)
    rest = found(directory, "a", first=part.next_line)
    assert (rest.lines, rest.is_complete) == ((4, 5), True)


def test_an_expression_without_end_is_stopped_and_leaves_what_was_found(directory: Path) -> None:
    stopped = found(directory, "(a+)+$", is_regex=True, cpu_s=1)
    assert (stopped.took_too_long, stopped.is_complete) == (True, False)


def test_an_expression_that_is_none_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        found(directory, "(", is_regex=True)


def test_the_service_compiles_no_expression_of_a_user(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To compile one of 1,000 characters can take seconds, e.g. 190 ranges of all characters without case."""

    def compiled(text: str) -> None:
        raise AssertionError(f"the service has compiled {text!r}")

    monkeypatch.setattr(re, "compile", compiled)
    assert found(directory, "l.ss", is_regex=True).lines == (1,)


def test_an_expression_that_takes_too_much_memory_is_stopped(tmp_path: Path) -> None:
    directory = create_stream(tmp_path, "/aws/sagemaker/TrainingJobs", "digits/algo-1-1")
    with SegmentWriter(directory) as writer:
        writer.write(b"a" * 200_000)
    place = LineNumbers().position_of(directory, 0)
    searcher = LineSearcher(cpu_s=60, memory_bytes=256 * 1024**2)
    expression = f"(?:{'()' * 90}a|b)*$"  # needs 600 MB for this line
    found = asyncio.run(searcher.search(directory, place, number=0, text=expression, is_regex=True))
    assert (found.lines, found.took_too_long, found.is_complete) == ((), True, False)
