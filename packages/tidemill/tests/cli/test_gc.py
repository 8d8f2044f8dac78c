"""`tidemill gc`: what goes and what stays."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.executors.build_lock import Built

Run = Callable[..., "subprocess.CompletedProcess[str]"]

DAY_S = 86400


@pytest.fixture
def state_dir(variables: dict[str, str]) -> Path:
    return Path(variables["TIDEMILL_STATE_DIR"])


@pytest.fixture
def environments_dir(variables: dict[str, str]) -> Path:
    return Path(variables["TIDEMILL_ENVIRONMENTS_DIR"])


def make_job(state_dir: Path, job_id: str, *, ended_days_ago: float | None) -> Path:
    directory = state_dir / "jobs" / job_id
    (directory / "algo-1").mkdir(parents=True)
    (directory / "algo-1" / "data").write_bytes(b"x" * 100_000)
    if ended_days_ago is not None:
        ended_ms = int((time.time() - ended_days_ago * DAY_S) * 1000)
        (directory / "published.json").write_text(
            json.dumps({"version": 1, "name": f"job-{job_id}", "ended_ms": ended_ms})
        )
    return directory


def make_environment(directory: Path, *, complete: bool, unused_days: float = 0) -> Path:
    directory.mkdir(parents=True)
    (directory / "file").write_bytes(b"x" * 10_000)
    if complete:
        Built(directory).complete({"key": directory.name})
        then_s = time.time() - unused_days * DAY_S
        os.utime(directory.with_name(f"{directory.name}.json"), (then_s, then_s))
    return directory


def test_directories_of_jobs_that_ended_long_ago_go(tidemill: Run, state_dir: Path) -> None:
    old = make_job(state_dir, "aa", ended_days_ago=8)
    young = make_job(state_dir, "bb", ended_days_ago=6)
    unpublished = make_job(state_dir, "cc", ended_days_ago=None)
    ended = tidemill("gc")
    assert ended.returncode == 0, ended.stderr
    assert "job-aa" in ended.stdout
    assert "freed 1" in ended.stdout
    assert [path.exists() for path in (old, young, unpublished)] == [False, True, True]


def test_a_dry_run_removes_nothing(tidemill: Run, state_dir: Path) -> None:
    old = make_job(state_dir, "aa", ended_days_ago=8)
    assert "would free" in tidemill("gc", "--dry-run").stdout
    assert old.exists()


def test_unfinished_environments_and_unused_overlays_go(tidemill: Run, environments_dir: Path) -> None:
    base = make_environment(environments_dir / "tf-2.21-aaaa", complete=True, unused_days=400)
    broken = make_environment(environments_dir / "tf-2.21-bbbb", complete=False)
    overlays = environments_dir / "overlays"
    used = make_environment(overlays / "used", complete=True, unused_days=3)
    unused = make_environment(overlays / "unused", complete=True, unused_days=31)
    half = make_environment(overlays / "half", complete=False)
    ended = tidemill("gc")
    assert ended.returncode == 0, ended.stderr
    assert [path.exists() for path in (base, used)] == [True, True]
    assert [path.exists() for path in (broken, unused, half)] == [False, False, False]


def test_an_environment_that_is_being_built_stays(tidemill: Run, environments_dir: Path) -> None:
    building = make_environment(environments_dir / "tf-2.21-cccc", complete=False)
    with Built(building).locked(poll=lambda: None):
        ended = tidemill("gc")
    assert ended.returncode == 0
    assert building.exists()
    assert "tf-2.21-cccc" not in ended.stdout


def test_directories_that_a_job_closed_are_removed_too(tidemill: Run, state_dir: Path) -> None:
    old = make_job(state_dir, "aa", ended_days_ago=8)
    (old / "algo-1").chmod(0o500)
    assert tidemill("gc").returncode == 0
    assert not old.exists()


def test_nothing_to_do_is_no_error(tidemill: Run) -> None:
    assert tidemill("gc").stdout == "freed 0 bytes (0 B)\n"
