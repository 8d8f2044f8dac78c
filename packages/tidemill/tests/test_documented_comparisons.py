"""Each row of docs/comparisons.md names tests that exist, and tolerances that are in their files."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = REPOSITORY / "docs/comparisons.md"
DIRECTORY = re.compile(r"^Tests in `([^`]+)`", re.M)
TEST = re.compile(r"`([\w./-]+\.py)::(test_\w+)`")
HELPER = re.compile(r"\(`([\w/]+\.py)`\)")
NUMBER = re.compile(r"`([\d.]+(?:e-\d+|\*\*-\d+)?)`")


class Row(NamedTuple):
    """A row of a table: the directory of its tests, the cell with the tolerance, and the tests by file and name."""

    directory: str
    tolerance: str
    tests: list[tuple[str, str]]


def rows() -> Iterator[Row]:
    for section in PAGE.read_text().split("\n## ")[1:]:
        named = DIRECTORY.search(section)
        for line in section.splitlines():
            if line.startswith("| ") and (tests := TEST.findall(line)):
                yield Row(named[1] if named else "", line.split(" | ")[2], tests)


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: row.tests[0][1])
def test_a_row_names_tests_that_exist_and_tolerances_of_theirs(row: Row) -> None:
    directory = REPOSITORY / row.directory
    for file, name in row.tests:
        tree = ast.parse((directory / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, file
    files = {file for file, _ in row.tests} | set(HELPER.findall(row.tolerance))
    text = "\n".join((directory / file).read_text() for file in files)
    numbers = NUMBER.findall(row.tolerance)
    assert numbers or "equal" in row.tolerance
    assert [number for number in numbers if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text)] == []


def test_every_line_of_a_table_is_a_row_of_this_test() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    headings = [line for line in lines if line.endswith("| tests |")]
    assert len(headings) == 7
    assert len(list(rows())) == len(lines) - len(headings)
