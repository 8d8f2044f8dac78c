"""`tidemill gc`: what it removes and what it keeps."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tidemill._shared import trees
from tidemill._shared.trees import remove_tree
from tidemill.cli import gc
from tidemill.environments.build_lock import Built
from tidemill.environments.builder import Environments

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


def test_compiler_decisions_are_removed_when_none_is_recent(tidemill: Run, state_dir: Path) -> None:
    old, used = state_dir / "compiler" / "aa", state_dir / "compiler" / "bb"
    for directory in (old, used):
        directory.mkdir(parents=True)
        (directory / "decision.json").write_text("{}")
        (directory / "link").symlink_to(state_dir.parent)
        for path in (directory / "decision.json", directory / "link", directory):
            os.utime(path, (0, 0), follow_symlinks=False)
    os.utime(used / "decision.json")
    ended = tidemill("gc")
    assert ended.returncode == 0, ended.stderr
    assert not old.exists()
    assert used.exists() and state_dir.parent.exists()


def test_reports_of_cluster_machines_are_removed_with_the_job(tidemill: Run, state_dir: Path) -> None:
    reports = [state_dir / "cluster/jobs" / job_id for job_id in ("aa", "bb")]
    for directory in reports:
        (directory / "algo-1").mkdir(parents=True)
        (directory / "algo-1/exit.json").write_text("{}")
    make_job(state_dir, "aa", ended_days_ago=8)
    make_job(state_dir, "bb", ended_days_ago=6)
    ended = tidemill("gc")
    assert ended.returncode == 0, ended.stderr
    assert [directory.exists() for directory in reports] == [False, True]


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
    base = make_environment(environments_dir / "tf-2.21-aaaa", complete=True, unused_days=3)
    broken = make_environment(environments_dir / "tf-2.21-bbbb", complete=False)
    overlays = environments_dir / "overlays"
    used = make_environment(overlays / "used", complete=True, unused_days=3)
    unused = make_environment(overlays / "unused", complete=True, unused_days=31)
    half = make_environment(overlays / "half", complete=False)
    ended = tidemill("gc")
    assert ended.returncode == 0, ended.stderr
    assert [path.exists() for path in (base, used)] == [True, True]
    assert [path.exists() for path in (broken, unused, half)] == [False, False, False]


def make_layers(directory: Path, name: str, *, base: str, unused_days: float) -> tuple[Path, Path]:
    """Create an environment and the layers below it, of an earlier lock or of another version of tidemill.

    Return the environment and its base; its AWS CLI is ``aws-cli-BASE``.
    """
    below, aws_cli = directory / f"tf-2.21-base-{base}", directory / f"aws-cli-{base}"
    for layer in (below, aws_cli):
        if not layer.exists():
            make_environment(layer, complete=True)
    above = make_environment(directory / f"tf-2.21-{name}", complete=True)
    layers = {"base": below.name, "aws_cli": aws_cli.name}
    Built(above).complete({"name": "tf-2.21", "key": name, "lock_sha256": "00", **layers})
    for path in (below, aws_cli, above):
        set_last_use(path, unused_days)
    return above, below


def set_last_use(path: Path, days_ago: float) -> None:
    then_s = time.time() - days_ago * DAY_S
    used = path.with_name(f"{path.name}.used")
    used.touch()
    for each in (used, path.with_name(f"{path.name}.json")):
        os.utime(each, (then_s, then_s))


def test_unused_environments_of_earlier_locks_are_removed_with_their_bases(
    tidemill: Run, environments_dir: Path
) -> None:
    old = make_layers(environments_dir, "aaaa", base="1111", unused_days=31)
    lately = make_layers(environments_dir, "bbbb", base="2222", unused_days=29)
    # A base is removed when the last environment above it is removed.
    shared, base = make_layers(environments_dir, "cccc", base="3333", unused_days=31)
    make_layers(environments_dir, "dddd", base="3333", unused_days=3)
    for layer in (base, environments_dir / "aws-cli-3333"):
        set_last_use(layer, 31)
    shown = tidemill("gc", "--dry-run").stdout
    assert [line.split("  ")[-1] for line in shown.splitlines()[:-1]] == [
        "unused environment tf-2.21-aaaa",
        "unused environment tf-2.21-cccc",
        "unused environment aws-cli-1111",
        "unused environment tf-2.21-base-1111",
    ]
    assert old[0].exists() and old[1].exists()
    ended = tidemill("gc")
    assert ended.returncode == 0, ended.stderr
    assert [path.exists() for path in (*old, *lately, shared, base)] == [False, False, True, True, False, True]
    assert not [*environments_dir.glob("*aaaa*"), *environments_dir.glob("*1111*")], "no lock or marker is left"


def test_an_environment_of_the_present_lock_is_kept_even_if_unused(tidemill: Run, environments_dir: Path) -> None:
    present = Environments(environments_dir).describe("tf-2.21")
    for path in (present.prefix, *present.shared_layers):
        make_environment(path, complete=True)
        set_last_use(path, 400)
    Built(present.prefix).complete({"name": "tf-2.21", "key": "x", "lock_sha256": "00", "base": present.base.name})
    set_last_use(present.prefix, 400)
    assert tidemill("gc").stdout == "freed 0 bytes (0 B)\n"
    assert all(path.exists() for path in (present.prefix, *present.shared_layers))


def test_an_environment_in_use_stays_until_its_process_ends_or_is_killed(tidemill: Run, environments_dir: Path) -> None:
    layers = make_layers(environments_dir, "aaaa", base="1111", unused_days=31)
    overlay = make_environment(environments_dir / "overlays" / "packages", complete=True, unused_days=31)
    kept = (*layers, overlay)
    code = (
        "import signal, sys; from pathlib import Path; from tidemill.environments.build_lock import Built\n"
        "for name in sys.argv[1:]: Built(Path(name)).hold()\n"
        "print('holds', flush=True); signal.pause()\n"
    )
    command = [sys.executable, "-c", code, *map(str, kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        for path in kept:
            set_last_use(path, 31)  # as after 31 days
        assert tidemill("gc").stdout == "freed 0 bytes (0 B)\n"
        process.kill()
    assert tidemill("gc").returncode == 0
    assert not any(path.exists() for path in kept)


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


def test_what_cannot_be_removed_is_named_and_does_not_keep_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = make_job(tmp_path, "aa", ended_days_ago=8), make_job(tmp_path, "bb", ended_days_ago=8)

    def remove(path: Path) -> None:
        if path == first:
            raise PermissionError(1, "Operation not permitted", "data")
        remove_tree(path)

    monkeypatch.setattr(trees, "remove_tree", remove)
    monkeypatch.setenv("TIDEMILL_ENVIRONMENTS_DIR", str(tmp_path / "environments"))
    with pytest.raises(typer.Exit) as ended:
        gc.gc(older_than=7, unused_for=30, state_dir=tmp_path)
    assert ended.value.exit_code == 1
    said = capsys.readouterr()
    assert said.err.startswith("tidemill: directory of job job-aa cannot be removed: [Errno 1] Operation not permitted")
    assert "directory of job job-bb" in said.out
    assert (first.exists(), second.exists()) == (True, False)


def test_nothing_to_remove_is_not_an_error(tidemill: Run) -> None:
    assert tidemill("gc").stdout == "freed 0 bytes (0 B)\n"
