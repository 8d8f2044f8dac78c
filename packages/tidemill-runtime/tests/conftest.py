"""A job in a scratch /opt/ml, run by the real runtime in an environment built like those of jobs."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import textwrap
import venv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest


def make_environment(prefix: Path, *, below: str = "") -> str:
    """Create a virtual environment above that of a Python; return its own Python.

    Args:
        prefix: Directory of the environment.
        below: The Python. Default: that of this process.
    """
    venv.EnvBuilder(symlinks=True, with_pip=False).create(prefix)
    (packages,) = (prefix / "lib").glob("python*/site-packages")
    under = Path(below).parent.parent / packages.relative_to(prefix) if below else site.getsitepackages()[0]
    (packages / "tidemill-base.pth").write_text(f"import site; site.addsitedir({str(under)!r})\n")
    return str(prefix / "bin" / "python")


@dataclass
class Job:
    """The preparations that a shim would make.

    Attributes:
        base: Directory in place of /opt/ml.
        python: Interpreter of the job's environment.
        variables: Container variables in addition to those of every job.
    """

    base: Path
    python: str
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**inherited, "SAGEMAKER_BASE_DIR": str(self.base), **self.variables}

    @property
    def command(self) -> list[str]:
        return [self.python, "-m", "tidemill_runtime", "train"]

    @property
    def failure(self) -> str:
        return (self.base / "output" / "failure").read_text(encoding="utf-8")

    def config(self, name: str, value: Any) -> None:
        path = self.base / "input" / "config" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    def hyperparameters(self, **raw: str) -> None:
        self.config("hyperparameters", {"sagemaker_program": "train.py", **raw})

    def code(self, name: str, source: str) -> Path:
        path = self.base / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source), encoding="utf-8")
        return path

    def script(self, source: str) -> None:
        """Write code and configuration of a job with a single file."""
        self.code("train.py", source)
        if not (self.base / "input" / "config" / "hyperparameters.json").exists():
            self.hyperparameters()

    def own_environment(self) -> Path:
        """Give the job an environment of its own above that of its Python; return its directory."""
        prefix = self.base / ".tidemill" / "environment"
        make_environment(prefix, below=self.python)
        self.variables["TIDEMILL_ENVIRONMENT"] = str(prefix)
        return prefix

    def run(self, *extra: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*self.command, *extra], env=self.environment, cwd=self.base, capture_output=True, timeout=120, check=False
        )

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command, env=self.environment, cwd=self.base, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
        )


@pytest.fixture(scope="session")
def job_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of an environment that reports uncaught exceptions, as every job environment does."""
    prefix = tmp_path_factory.mktemp("environment") / "env"
    python = make_environment(prefix)
    packages = next((prefix / "lib").glob("python*/site-packages"))
    (packages / "tidemill.pth").write_text("import tidemill_runtime.startup\n")
    return python


@pytest.fixture
def job(tmp_path: Path, job_python: str) -> Job:
    base = tmp_path / "ml"
    base.mkdir()
    return Job(base, job_python)


@pytest.fixture(scope="session")
def this_python() -> str:
    return sys.executable
