"""Interpreters: which one is chosen, and the message if there is none."""

import sys
from pathlib import Path

import pytest

from tidemill.core.frameworks import FRAMEWORKS
from tidemill.environments import interpreters
from tidemill.environments.builder import Environments
from tidemill.environments.interpreters import FoundInterpreter, available, find_interpreter, preferred
from tidemill.environments.payload import DISTRIBUTIONS, RuntimeSource
from tidemill.errors import EnvironmentBuildError, MissingInterpreterError

OWN = ".".join(map(str, sys.version_info[:2]))


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    """A machine on which uv finds no Python and may download none; returns pyenv's directory."""
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    return tmp_path / "pyenv"


def pyenv_python(root: Path, version: str, script: str) -> Path:
    python = root / "versions" / version / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return python


def answering(version: str) -> str:
    return f"""echo '["{version}", "/p/{version}/bin/python", "/p/{version}"]'"""


def test_the_interpreter_of_tidemill_comes_first_then_the_newest():
    assert preferred(("3.5", OWN, "3.99", "3.6"))[0] == OWN
    assert preferred(("3.7", "3.9", "3.8")) == ("3.9", "3.8", "3.7")
    assert find_interpreter((OWN,), purpose="It") == FoundInterpreter.own()


def test_the_newest_patch_of_pyenv_is_taken_and_what_does_not_run_is_passed_over(bare_machine):
    pyenv_python(bare_machine, "3.7.9", answering("3.7.9"))
    pyenv_python(bare_machine, "3.7.16", answering("3.7.16"))
    pyenv_python(bare_machine, "3.7.17", "exit 1")
    found = find_interpreter(("3.8", "3.7"), purpose="It")
    assert (found.version, found.minor, found.executable) == ("3.7.16", "3.7", Path("/p/3.7.16/bin/python"))
    assert available(("3.8", "3.7")) == ("3.7",)


def test_an_interpreter_on_the_path_is_found(bare_machine, tmp_path, monkeypatch):
    own = FoundInterpreter.own()
    (tmp_path / f"python{OWN}").symlink_to(own.executable)
    monkeypatch.setattr(FoundInterpreter, "own", lambda: FoundInterpreter(Path("/p/python"), "3.1.0", Path("/p")))
    found = find_interpreter((OWN,), purpose="It")
    assert (found.version, found.executable) == (own.version, own.executable)


def test_an_interpreter_that_is_installed_later_is_found_by_the_same_process(bare_machine):
    with pytest.raises(MissingInterpreterError):
        find_interpreter(("3.7",), purpose="It")
    pyenv_python(bare_machine, "3.7.16", answering("3.7.16"))
    assert find_interpreter(("3.7",), purpose="It").minor == "3.7"


def test_a_missing_one_is_refused_with_the_command_that_installs_it(bare_machine, tmp_path):
    lines = []
    with pytest.raises(MissingInterpreterError) as caught:
        Environments(tmp_path / "environments").ensure("tf-1.15", log=lines.append)
    assert str(caught.value) == (
        "TensorFlow 1.15 runs on Python 3.7, which is not on this machine; install it: `uv python install 3.7` (or"
        " `pyenv install 3.7`)"
    )
    assert lines == []
    assert not (tmp_path / "environments").exists()


def test_uv_downloads_a_missing_python_and_its_failure_has_the_same_message(bare_machine, tmp_path, monkeypatch):
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS")
    commands = []

    def refuse(command, **_):
        commands.append(command[1:])
        raise EnvironmentBuildError("no network")

    monkeypatch.setattr(interpreters, "run_command", refuse)
    lines = []
    with pytest.raises(MissingInterpreterError, match=r"uv python install 3\.8"):
        Environments(tmp_path / "environments").ensure("tf-2.4", log=lines.append)
    assert lines == ["tidemill: Python 3.8 is not on this machine; uv downloads it"]
    assert commands[0][-1] == "3.8"


def test_a_python_that_the_environment_is_not_locked_for_is_refused(tmp_path):
    with pytest.raises(EnvironmentBuildError, match=r"tf-2\.15 does not run on Python 3\.7; it runs on 3\.9, 3\.10"):
        Environments(tmp_path).describe("tf-2.15", python="3.7")


@pytest.mark.parametrize(
    ("version", "python", "without"),
    [
        ("2.21", "3.11", set()),
        ("2.16", "3.12", {"tidemill-serving"}),
        ("2.15", "3.10", {"tidemill-serving"}),
        ("2.12", "3.10", {"tidemill-serving"}),
        ("2.12", "3.9", {"tidemill-serving", "tidemill-smp"}),
        ("2.6", "3.9", {"tidemill-serving", "tidemill-smp"}),
        ("2.4", "3.8", {"tidemill-serving", "tidemill-smp", "tidemill-tensorflow"}),
        ("1.15", "3.7", {"tidemill-serving", "tidemill-smp", "tidemill-tensorflow"}),
    ],
)
def test_an_environment_gets_the_distributions_that_run_on_its_version(version, python, without):
    sources = tuple(Path("packages") / name / "src" for name in DISTRIBUTIONS)
    wheels = tuple(Path(f"{name.replace('-', '_')}-0.1.0-py3-none-any.whl") for name in DISTRIBUTIONS)
    found = RuntimeSource(wheels, sources, "one").of(FRAMEWORKS[version], python)
    names = set(DISTRIBUTIONS) - without
    assert {path.parent.name for path in found.sources} == names
    assert {wheel.name.partition("-")[0].replace("_", "-") for wheel in found.wheels} == names
