"""The command line as a whole: help, exit codes, and which modules are loaded when."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemill.cli import VERBS

Run = Callable[..., "subprocess.CompletedProcess[str]"]

HEAVY = {"boto3", "botocore", "sqlalchemy", "httptools", "uvloop", "tensorflow", "numpy", "tidemill.sdk"}


def test_help_lists_every_verb(tidemill: Run) -> None:
    shown = tidemill("--help")
    assert shown.returncode == 0
    for verb in VERBS:
        assert f" {verb} " in shown.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["up", "--port", "x"], ["stop"], ["gc", "--older-than", "-1"]])
def test_wrong_usage_exits_with_two(tidemill: Run, arguments: list[str]) -> None:
    assert tidemill(*arguments).returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["env"], ["status"]])
def test_quick_verbs_load_nothing_heavy(variables: dict[str, str], arguments: list[str]) -> None:
    program = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from tidemill.cli import main\n"
        f"main({arguments!r})\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    loaded = set(json.loads(ended.stderr.splitlines()[-1]))
    assert not loaded & HEAVY


@pytest.mark.parametrize("verb", [["ps"], ["logs", "job"], ["stop", "job"], ["env"]])
def test_without_a_service_a_command_prints_how_to_start_one(tidemill: Run, verb: list[str]) -> None:
    ended = tidemill(*verb)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    assert "no service runs" in ended.stderr
    assert "tidemill up" in ended.stderr


def test_a_wrong_setting_is_named_with_its_value(tidemill: Run) -> None:
    ended = tidemill("status", TIDEMILL_ISOLATION="docker")
    assert ended.returncode == 1
    assert "isolation='docker'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_broken_settings_file_is_an_error_that_names_it(tidemill: Run, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("port = [")
    ended = tidemill("status", TIDEMILL_CONFIG=str(file))
    assert ended.returncode == 1
    assert "settings file cannot be read" in ended.stderr
