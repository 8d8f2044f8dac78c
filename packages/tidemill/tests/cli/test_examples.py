"""`tidemill examples`: copied into new directories only."""

import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_an_example_is_copied_and_nothing_is_overwritten(tidemill: Run, tmp_path: Path) -> None:
    listed = tidemill("examples", "list")
    assert {"digits", "pipe-mode", "model-parallel", "model-parallel-hybrid"} <= set(listed.stdout.split())
    target = tmp_path / "new/one"
    assert tidemill("examples", "get", "digits", target).returncode == 0
    assert {file.name for file in target.iterdir()} == {"client.py", "prepare.py", "train.py"}
    (target / "train.py").write_text("mine")
    again = tidemill("examples", "get", "digits", target)
    assert (again.returncode, (target / "train.py").read_text()) == (1, "mine")
    assert "exists" in again.stderr
    unknown = tidemill("examples", "get", "../digits")
    assert unknown.returncode == 1
    assert "there are digits, pipe-mode, model-parallel" in unknown.stderr
