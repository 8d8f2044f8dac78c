"""Jobs whose environment cannot be built: each ends with one reason, leaves nothing, and the next job works."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemill.instance.status import InstanceOutcome


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory on a file system of 16 KiB, which has no room for a virtual environment."""
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(directory)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_a_disk_that_is_full_during_a_build(
    make_stage: Callable[..., Any], small_disk: Path, fake_environment: Callable[[Path, str], None]
) -> None:
    stage = make_stage("auto", small_disk)
    ref, ended = stage.run("print('ran')")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure == f"ClientError: no space left on device: {small_disk}", stage.lines(ref)
    assert [each for each in small_disk.iterdir() if each.is_dir()] == []
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    fake_environment(small_disk, "tf-2.21")
    ref, ended = stage.run("print('ran')")
    assert (ended.outcome, stage.lines(ref)[-1]) == (InstanceOutcome.COMPLETED, "ran"), ended


def test_a_python_that_the_machine_does_not_have(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    _, ended = stage.run("print('ran')", framework_version="1.15", python="3.7")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure == (
        "ClientError: TensorFlow 1.15 runs on Python 3.7, which is not on this machine; install it: `uv python install"
        " 3.7` (or `pyenv install 3.7`)"
    )
    ref, ended = stage.run("print('ran')")
    assert (ended.outcome, stage.lines(ref)[-1]) == (InstanceOutcome.COMPLETED, "ran"), ended


def test_a_python_that_the_version_does_not_run_on(stage: Any) -> None:
    _, ended = stage.run("print('ran')", framework_version="2.15", python="3.7")
    assert ended.outcome is InstanceOutcome.FAILED
    assert ended.failure == (
        "InternalServerError: the environment tf-2.15 cannot be built: the environment tf-2.15 does not run on Python"
        " 3.7; it runs on 3.9, 3.10, 3.11"
    )
