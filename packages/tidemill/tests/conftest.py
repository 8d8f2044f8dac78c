"""A way to run the command line as real processes, with a toy in the place of the application."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

TOY = Path(__file__).parent / "toy"


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of a child: the toy application, no settings but these."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_", "TOY_"))}
    return kept | {
        "PYTHONPATH": str(TOY),
        "TIDEMILL_CONFIG": os.devnull,
        "TIDEMILL_STATE_DIR": str(tmp_path / "state"),
        "TIDEMILL_ENVIRONMENTS_DIR": str(tmp_path / "environments"),
        "TIDEMILL_PORT": "0",
        "HOME": str(tmp_path),
    }


@pytest.fixture
def tidemill(variables: dict[str, str]) -> Iterator[Callable[..., "subprocess.CompletedProcess[str]"]]:
    """Run a verb to its end. What it left running ends with the test."""

    def run(*arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tidemill.cli", *arguments],
            env=variables | changes,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    yield run
    ended = run("down")
    assert ended.returncode == 0, ended.stderr
