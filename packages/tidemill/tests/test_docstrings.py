"""The examples in docstrings of `tidemill.sdk` and `tidemill.core` produce what they show."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "src"
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(PACKAGES).with_suffix("").parts)
    for package in ("sdk", "core")
    for path in (PACKAGES / "tidemill" / package).rglob("*.py")
    if re.search(r">>> (?!.*\+SKIP)", path.read_text())  # examples that need a running service are skipped
)


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples_in_docstrings_run(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))

    assert results.attempted > 0
    assert results.failed == 0
