"""Settings of every test run, and what tests need of a machine that it may lack."""

import functools
import inspect
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Hypothesis fails a test whose examples take long to generate or to run. On a busy machine any example may. Every run
# has the same examples, so that a change is not refused for a fault that was there before;
# `--hypothesis-profile new` looks for further ones.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True)
settings.load_profile("same")

sys.path.append(str(Path(__file__).parent / "tests"))  # forked_scripts, polling

# A shell lets what it starts in the background ignore Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_NEEDS = {
    "bubblewrap": (
        ("bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"),
        "apt install bubblewrap; in a container, allow unprivileged user namespaces",
    ),
    "unshare": (
        ("unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"),  # noqa: S108
        "allow unprivileged user namespaces",
    ),
    "btrfs": (("mkfs.btrfs", "--version"), "apt install btrfs-progs"),
    "postgresql": (("sh", "-c", "command -v initdb || pg_lsclusters"), "apt install postgresql"),
    "openssl": (("openssl", "version"), "apt install openssl"),
    "systemd": (("systemd-analyze", "--version"), "apt install systemd"),
}
"""For each need: a command that succeeds if the machine has it, and what to do if it fails."""

_OPTIONAL = re.compile(r"bwrap|bubblewrap|btrfs|postgres|initdb|clang|systemd-analyze", re.IGNORECASE)
"""What `.ci/run` installs where it may, and a user's machine may lack."""


@pytest.fixture(scope="session")
def need() -> Callable[[str], None]:
    """Return a function that skips the test, with the reason, if the machine lacks one of `_NEEDS`."""

    def check(name: str) -> None:
        fault = _fault(name)
        if fault:
            pytest.skip(fault)

    return check


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., Any]:
    """Return a function that waits for a condition for which there is no notification."""
    from polling import poll

    return poll


@functools.cache
def _fault(name: str) -> str:
    command, remedy = _NEEDS[name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return f"no {name} here ({error.strerror}: {command[0]}): {remedy}"
    return f"no {name} here ({done.stderr.strip()}): {remedy}" if done.returncode else ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--naming-optional-tools",
        action="store_true",
        help="run only tests that name a program which a machine may lack, in their own text or in that of a fixture",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--naming-optional-tools"):
        return
    chosen = [item for item in items if _OPTIONAL.search(_text(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def _text(item: pytest.Item) -> str:
    """Return the name and the source of a test, and of the fixtures that it uses."""
    assert isinstance(item, pytest.Function)
    fixtures = [each for definitions in item._fixtureinfo.name2fixturedefs.values() for each in definitions]
    return "\n".join([item.name, *(_source(function) for function in (item.obj, *(each.func for each in fixtures)))])


@functools.cache
def _source(function: Callable[..., object]) -> str:
    return inspect.getsource(inspect.unwrap(getattr(function, "__func__", function)))
