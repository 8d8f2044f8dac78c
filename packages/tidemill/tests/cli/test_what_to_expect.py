"""The page that says what to expect: each of its rows names tests that exist."""

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]


def test_each_row_names_tests_that_exist() -> None:
    text = (REPOSITORY / "docs/what-to-expect.md").read_text()
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 22
    for row in rows:
        named = re.findall(r"`((?:tests|packages)/[^`]+)`", row[-1])
        assert named, row[0]
        for path in named:
            body = ast.parse((REPOSITORY / path).read_text()).body
            is_test = any(isinstance(each, ast.FunctionDef) and each.name.startswith("test_") for each in body)
            assert is_test or path.startswith("tests/typing/"), path
