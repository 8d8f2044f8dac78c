"""requirements.txt of the user's code: whether packages are needed, and how they are installed.

A job's environment is read-only and shared. If the code needs packages, ``train`` writes them to ``needs-overlay.json``
and exits with status 75. The shim, which keeps overlays, runs ``install`` if no overlay has this digest, and then
``train`` again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime.code import COMMAND, PACKAGE
from tidemill_runtime.errors import InstallModuleError, InstallRequirementsError
from tidemill_runtime.overlay import create_overlay, interpreter
from tidemill_runtime.tee import Tail

if TYPE_CHECKING:
    from tidemill_runtime.code import EntryPoint

__all__ = ["NEEDS_OVERLAY_STATUS", "Requirements", "install", "needed_by"]

NEEDS_OVERLAY_STATUS = 75

SETUP = "setup.py"

REGISTRY_LINE = re.compile(
    r"""(?x) \s* (
        [A-Za-z0-9][A-Za-z0-9._-]* \s* (\[[^\]/]*\])? \s* ([<>=!~][^/@;]*)? (;[^/@]*)?
        | (-i|--index-url|--extra-index-url|--pre|--prefer-binary|--only-binary|--no-binary|--require-hashes)\b .*
        | (--hash=\S+ \s* \\? \s*)+
    )? \s* (\#.*)?"""
)
"""A line whose meaning does not depend on other files of the user's code."""

LOCAL_ARCHIVE = re.compile(r"\.(whl|zip|tar|tgz|gz|bz2|xz)\b")


@dataclass(frozen=True)
class Requirements:
    """Packages that the user's code requires.

    Attributes:
        path: A requirements.txt, or the setup.py of a package, which is installed after its requirements.txt.
        sha256: Digest of everything that determines what is installed.
    """

    path: Path
    sha256: str

    def write(self, request: Path) -> None:
        """Write the request for the shim."""
        request.parent.mkdir(parents=True, exist_ok=True)
        temporary = request.with_name(f".{request.name}.tmp")
        temporary.write_text(json.dumps({"requirements": str(self.path), "sha256": self.sha256}), encoding="utf-8")
        temporary.replace(request)


def needed_by(entry_point: EntryPoint) -> Requirements | None:
    """Return the packages that must be installed before this entry point can run; None if none.

    As in SageMaker's toolkit, a shell command gets none, even with a requirements.txt beside it.
    """
    directory = entry_point.directory
    file = directory / "requirements.txt"
    if entry_point.kind == COMMAND:
        return None
    if entry_point.kind == PACKAGE:
        return Requirements(directory / SETUP, _digest_of_tree(directory))
    if not file.is_file():
        return None
    text = file.read_bytes()
    lines = [line.rstrip("\\") for line in text.decode("utf-8", "surrogateescape").splitlines()]
    if not any(line.split("#")[0].strip() for line in lines):
        return None
    if all(REGISTRY_LINE.fullmatch(line) and not LOCAL_ARCHIVE.search(line) for line in lines):
        return Requirements(file, hashlib.sha256(text).hexdigest())
    return Requirements(file, _digest_of_tree(directory))


def install(overlay: Path, requirements: Path) -> None:
    """Create the overlay and install into it. pip's output goes to the job's log as it arrives.

    Args:
        overlay: Directory of the overlay environment; created if it is missing.
        requirements: ``Requirements.path``.

    Raises:
        InstallRequirementsError: pip failed on a requirements.txt.
        InstallModuleError: pip failed on the submitted package.
    """
    create_overlay(overlay)
    python = interpreter(overlay)
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    directory = requirements.parent
    file = directory / "requirements.txt" if requirements.name == SETUP else requirements
    if file.is_file() or requirements.name != SETUP:
        _run(*pip, "-r", str(file), cwd=directory, error=InstallRequirementsError)
    if requirements.name != SETUP:
        return
    # Without pyproject.toml, setuptools of the base environment builds the package: a plain setup.py needs no download.
    isolation = [] if (directory / "pyproject.toml").is_file() else ["--no-build-isolation"]
    _run(*pip, *isolation, ".", cwd=directory, error=InstallModuleError)


def _run(*command: str, cwd: Path, error: type[InstallRequirementsError]) -> None:
    tail = Tail()
    with subprocess.Popen(command, cwd=cwd, stdout=None, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as pip:
        assert pip.stderr is not None  # because of PIPE above
        while True:
            data = os.read(pip.stderr.fileno(), 65536)
            if not data:
                break
            tail.pass_on(data)
    if pip.returncode:
        lines = [line for line in tail.text().splitlines() if line.strip() and "[notice]" not in line]
        raise error("\n".join(lines[-12:]), exit_code=pip.returncode, command=command)


def _digest_of_tree(directory: Path) -> str:
    """Return a digest of names, modes and content of all files, and of the path, which an editable install stores."""
    digest = hashlib.sha256(os.fsencode(directory.absolute()))
    digest.update(sys.version.encode())
    for path in sorted(directory.rglob("*")):
        if path.is_symlink():
            content = os.fsencode(Path(os.readlink(path)))
        elif path.is_file():
            content = path.read_bytes()
        else:
            continue
        name = os.fsencode(path.relative_to(directory))
        digest.update(b"%d %s %d " % (len(name), name, len(content)))
        digest.update(content)
    return digest.hexdigest()
