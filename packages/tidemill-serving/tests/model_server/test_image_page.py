"""The how-to page on replacing an image: its commands run as they are printed, but for the ports."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tidemill_serving.flags import read_flags

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/replace-a-tensorflow-serving-image.md"
DEADLINE_S = 300


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a directory with this environment's `python`, and the command as pip installs it."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, module in (("python", ""), ("tensorflow_model_server", "-m tidemill_serving.tensorflow_model_server")):
        (directory / name).write_text(f'#!/bin/sh\nexec {sys.executable} {module} "$@"\n')
        (directory / name).chmod(0o755)
    return directory


def test_the_commands_of_the_page_serve_its_model(programs: Path, tmp_path: Path, reserve: Any) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with ExitStack() as cleanup:
        for port in ("8500", "8501"):
            script = script.replace(port, str(reserve(cleanup)))
        done = subprocess.run(
            ["bash", "-e", "-c", f"{script}\nwait $! && echo ended"],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3"},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"predictions": [2.5, 3.0, 4.5\n    ]' in done.stdout
    assert '"state": "AVAILABLE"' in done.stdout
    assert done.stdout.endswith("ended\n")


def test_every_command_line_of_the_page_is_accepted() -> None:
    lines = re.findall(r"tensorflow_model_server (--[^`\n\\]*)", PAGE.read_text())
    assert len(lines) >= 4
    for line in lines:
        flags = read_flags([*line.split(), "--model_base_path=/models/half"])
        assert flags.without_effect() == []
