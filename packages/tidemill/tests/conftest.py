"""Fixtures that run the command line as real processes, with a toy in place of the application."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import botocore.loaders
import pytest

from tidemill.server.background import end_service
from tidemill.server.discovery import find_service
from tidemill.server.state import StateDirectory

if TYPE_CHECKING:
    from postgresql_server import PostgresqlServer

TOY = Path(__file__).parent / "toy"
sys.path.insert(0, str(Path(__file__).parent / "doubles"))


@pytest.fixture(scope="session", autouse=True)
def _service_models_are_parsed_once() -> Iterator[None]:
    """Make all sessions of botocore share one loader: otherwise each parses SageMaker's model, for 0.2 s of CPU."""
    shared = functools.cache(botocore.loaders.create_loader)
    with mock.patch("botocore.session.create_loader", shared):
        yield


@pytest.fixture(scope="session")
def files_open_below() -> Callable[[Path], list[str]]:
    """Return a function that lists the files of this process that are open below a directory.

    The number of all open files says nothing: the garbage collector closes those of other tests at any time.
    """

    def files_open_below(directory: Path) -> list[str]:
        paths = []
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # that of this listing
                paths.append(link.readlink())
        return sorted(str(path) for path in paths if path.is_relative_to(directory))

    return files_open_below


@pytest.fixture(scope="session")
def child_variables() -> Callable[[Path], dict[str, str]]:
    """Return a function that makes the environment of child processes.

    It selects the toy application, puts all files below one directory, and has no other settings.
    """

    def make(directory: Path) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMILL_", "AWS_", "TOY_"))}
        return kept | {
            "PYTHONPATH": str(TOY),
            "TIDEMILL_CONFIG": os.devnull,
            "TIDEMILL_STATE_DIR": str(directory / "state"),
            "TIDEMILL_ENVIRONMENTS_DIR": str(directory / "environments"),
            "TIDEMILL_PORT": "0",
            "HOME": str(directory),
        }

    return make


@pytest.fixture(scope="session")
def run_verb() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Return a function that runs a verb to its end in an environment."""

    def run(variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tidemill.cli", *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def variables(child_variables: Callable[[Path], dict[str, str]], tmp_path: Path) -> dict[str, str]:
    """Return the environment of this test's child processes."""
    return child_variables(tmp_path)


@pytest.fixture
def tidemill(
    run_verb: Callable[..., "subprocess.CompletedProcess[str]"], variables: dict[str, str]
) -> Iterator[Callable[..., "subprocess.CompletedProcess[str]"]]:
    """Return a function that runs a verb in this test's environment. A service left running ends with the test."""
    yield lambda *arguments, **changes: run_verb(variables | changes, *arguments)
    running = find_service(StateDirectory(Path(variables["TIDEMILL_STATE_DIR"])))
    if running is not None:
        end_service(running)


@pytest.fixture(scope="session")
def postgresql(need: Callable[[str], None]) -> "Iterator[PostgresqlServer]":
    """Yield a running server; the test is skipped if PostgreSQL is not installed."""
    need("postgresql")
    from postgresql_server import PostgresqlServer

    with contextlib.closing(PostgresqlServer()) as server:
        server.start()
        yield server
