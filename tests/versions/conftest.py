"""Outcomes by feature and version, printed as the table of docs/reference/job-environments.md.

A test with ``@pytest.mark.feature(NAME)``, where NAME is a key of `tidemill.core.features.FEATURES`, and with a
parameter ``version``, proves that the feature works on that version.
"""

import sys
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

from tidemill.core.features import FEATURES, table

sys.path.append(str(Path(__file__).parent))  # versions_jobs

_OUTCOMES = pytest.StashKey[dict[tuple[str, str], set[str]]]()
_PROVEN = pytest.StashKey[set[tuple[str, str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_OUTCOMES] = defaultdict(set)
    config.stash[_PROVEN] = set()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note what the collected tests prove, before those of the matrix are deselected."""
    for item in items:
        config.stash[_PROVEN].update(_proven_by(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":  # a failed or skipped set-up has no call
        for cell in _proven_by(item):
            item.config.stash[_OUTCOMES][cell].add(report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash[_OUTCOMES]
    if outcomes:
        terminalreporter.section("features by TensorFlow version")
        terminalreporter.write_line(table({cell: _text(found) for cell, found in outcomes.items()}))


@pytest.fixture(scope="session")
def proven(request: pytest.FixtureRequest) -> set[tuple[str, str]]:
    """Return the features and versions that have a test; skip the test if only some files were collected."""
    files = {item.path for item in request.session.items}
    if not files.issuperset(Path(__file__).parent.glob("test_*.py")):
        pytest.skip("only a part of tests/versions was collected")
    return request.config.stash[_PROVEN]


def _proven_by(item: pytest.Item) -> list[tuple[str, str]]:
    names = [str(name) for mark in item.iter_markers("feature") for name in mark.args]
    version = getattr(item, "callspec").params["version"] if names else ""  # noqa: B009 - only functions have it
    unknown = [name for name in names if name not in FEATURES]
    if unknown:
        raise pytest.UsageError(f"{item.nodeid}: no feature {unknown[0]!r}; FEATURES has {', '.join(FEATURES)}")
    return [(name, version) for name in names]


def _text(outcomes: set[str]) -> str:
    return "FAILS" if "failed" in outcomes else "yes" if "passed" in outcomes else "skipped"
