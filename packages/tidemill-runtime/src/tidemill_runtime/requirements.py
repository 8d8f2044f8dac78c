"""requirements.txt of the user's code: whether packages are needed, and how they are installed.

``train`` reports to the shim which packages the code needs, before it starts anything of the user. The shim installs
them with ``install``, once for all jobs or for this job only, and then runs ``train`` again.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING

from tidemill_runtime.code import COMMAND, PACKAGE
from tidemill_runtime.errors import InstallModuleError, InstallRequirementsError
from tidemill_runtime.tee import Tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tidemill_runtime.code import EntryPoint

NEEDS_PACKAGES_STATUS = 75

SETUP = "setup.py"


def needed_by(entry_point: EntryPoint) -> Path | None:
    """Return the requirements.txt or setup.py whose packages must be installed first; None if none are needed.

    A requirements.txt beside a setup.py is installed before it. As in SageMaker's toolkit, a shell command gets no
    packages, even with a requirements.txt beside it.

    Args:
        entry_point: What the job runs.
    """
    file = entry_point.directory / "requirements.txt"
    if entry_point.kind == COMMAND:
        return None
    if entry_point.kind == PACKAGE:
        return entry_point.directory / SETUP
    if not file.is_file():
        return None
    lines = file.read_bytes().decode("utf-8", "surrogateescape").splitlines()
    return file if any(line.split("#")[0].strip() for line in lines) else None


def report_needs(variables: Mapping[str, str], requirements: Path | None) -> None:
    """Send the shim its only message of this run: the packages to install, or none. Later messages have no effect.

    Must be called before anything of the user runs: the shim believes the first message, which no user code can forge.

    Args:
        variables: The container's environment; ``TIDEMILL_NEEDS_FD`` is a pipe to the shim, if there is one.
        requirements: Result of `needed_by`.
    """
    fd = variables.get("TIDEMILL_NEEDS_FD")
    if not fd:
        return
    message = {"requirements": str(requirements)} if requirements else {}
    with os.fdopen(int(fd), "wb") as pipe:
        pipe.write(json.dumps(message).encode("ascii"))


def install(environment: Path, requirements: Path, *, variables: Mapping[str, str]) -> None:
    """Install into a virtual environment. pip's output goes to the job's log as it arrives.

    Args:
        requirements: Result of `needed_by`.

    Raises:
        InstallRequirementsError: pip failed on a requirements.txt.
        InstallModuleError: pip failed on the submitted package.
    """
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    directory = requirements.parent
    file = directory / "requirements.txt" if requirements.name == SETUP else requirements
    if file.is_file() or requirements.name != SETUP:
        _run(*pip, "-r", str(file), cwd=directory, variables=variables, error=InstallRequirementsError)
    if requirements.name != SETUP:
        return
    # Without pyproject.toml, setuptools of the base environment builds the package: a plain setup.py needs no download.
    isolation = [] if (directory / "pyproject.toml").is_file() else ["--no-build-isolation"]
    _run(*pip, *isolation, ".", cwd=directory, variables=variables, error=InstallModuleError)


def _run(*command: str, cwd: Path, variables: Mapping[str, str], error: type[InstallRequirementsError]) -> None:
    tail = Tail()
    with subprocess.Popen(
        command, cwd=cwd, env=dict(variables), stdout=None, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as pip:
        assert pip.stderr is not None  # because of PIPE above
        while True:
            data = os.read(pip.stderr.fileno(), 65536)
            if not data:
                break
            tail.pass_on(data)
    if pip.returncode:
        lines = [line for line in tail.text().splitlines() if line.strip() and "[notice]" not in line]
        raise error("\n".join(lines[-12:]), exit_code=pip.returncode, command=command)
