"""Find interpreters for environments on this machine, or download them with uv if there is internet access.

A minor version is looked for in this order: the interpreter that runs tidemill, pyenv's directory, and the interpreters
that uv finds, i.e. those on PATH and those that uv has installed. An interpreter that does not run is skipped.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tidemill.environments.uv_command import BuildWatch, find_uv, installer_variables, run_command
from tidemill.errors import EnvironmentBuildError, MissingInterpreterError

_PROBE_TIMEOUT_S = 30
# The imported modules are optional in a build of Python, but uv, pip and TensorFlow need them.
_PROBE = (
    "import ctypes, json, platform, ssl, sys, zlib;"
    "print(json.dumps([platform.python_version(), getattr(sys, '_base_executable', None) or sys.executable,"
    " getattr(sys, 'base_prefix', sys.prefix)]))"
)
_PATCH = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class FoundInterpreter:
    """A Python outside every virtual environment.

    Attributes:
        executable: Path without symbolic links.
        version: Version with the patch number, e.g. ``3.7.16``.
        prefix: Directory of the installation.
    """

    executable: Path
    version: str
    prefix: Path

    @property
    def minor(self) -> str:
        """The minor version, e.g. ``3.7``."""
        return self.version.rpartition(".")[0]

    @property
    def number(self) -> tuple[int, ...]:
        """The minor version as comparable numbers, e.g. ``(3, 7)``."""
        return _number(self.minor)

    @classmethod
    def own(cls) -> "FoundInterpreter":
        """Return the interpreter that runs tidemill."""
        executable = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        # Without a distributor's suffix of the patch number, as in 3.11.2+.
        version = ".".join(map(str, sys.version_info[:3]))
        return cls(executable, version, Path(sys.base_prefix).resolve())


def preferred(pythons: Sequence[str]) -> tuple[str, ...]:
    """Return minor versions in the order in which they are tried: first that of tidemill, then newest to oldest.

    Args:
        pythons: For example ``3.11``.
    """
    own = FoundInterpreter.own().minor
    return tuple(sorted(pythons, key=lambda minor: (minor == own, _number(minor)), reverse=True))


def find_interpreter(pythons: Sequence[str], *, purpose: str) -> FoundInterpreter:
    """Return an interpreter of this machine.

    Args:
        pythons: Minor versions; the first one that is found is returned.
        purpose: Begins the error message, e.g. ``TensorFlow 2.21``.

    Raises:
        MissingInterpreterError: No interpreter was found; the message names the command that installs one.
    """
    for minor in pythons:
        found = _find(minor)
        if found is not None:
            return found
    shown = " or ".join(sorted(pythons, key=_number))
    if pythons[0].startswith("2."):
        raise MissingInterpreterError(
            f"{purpose} needs Python {shown} here, which is not on this machine, and uv has none; install it:"
            f" `pyenv install {pythons[0]}` (or the package python{pythons[0]} of an older Debian or Ubuntu); or port"
            " the script, and ask for py3"
        )
    raise MissingInterpreterError(
        f"{purpose} runs on Python {shown}, which is not on this machine; install it: `uv python install {pythons[0]}`"
        f" (or `pyenv install {pythons[0]}`)"
    )


def available(pythons: Sequence[str]) -> tuple[str, ...]:
    """Return the minor versions that are on this machine, in the given order.

    Args:
        pythons: For example ``3.11``.
    """
    return tuple(minor for minor in pythons if _find(minor) is not None)


def fetch_interpreter(pythons: Sequence[str], watch: BuildWatch) -> None:
    """Let uv download the first of the minor versions, unless `UV_PYTHON_DOWNLOADS` or `UV_OFFLINE` forbid it.

    Args:
        pythons: Minor versions, as for `find_interpreter`.

    Raises:
        EnvironmentBuildError: The download failed or is forbidden.
    """
    if os.environ.get("UV_PYTHON_DOWNLOADS") in ("never", "manual") or os.environ.get("UV_OFFLINE"):
        raise EnvironmentBuildError("uv may not download interpreters (UV_PYTHON_DOWNLOADS or UV_OFFLINE)")
    watch.log(f"tidemill: Python {pythons[0]} is not on this machine; uv downloads it")
    command = (find_uv(), "python", "install", "--no-bin", "--quiet", pythons[0])
    run_command(command, log=lambda _line: None, poll=watch.poll, cwd=Path("/"))


def _find(minor: str) -> FoundInterpreter | None:
    own = FoundInterpreter.own()
    if minor == own.minor:
        return own
    for candidate in _candidates(minor):
        with contextlib.suppress(OSError):
            found = _probe(candidate, candidate.stat().st_mtime_ns)
            if found is not None and found.minor == minor:
                return found
    return None


def _candidates(minor: str) -> Iterator[Path]:
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted(root.glob(f"versions/{minor}.*/bin/python"), key=_patch, reverse=True)
    if minor.startswith("2."):  # which uv does not look for
        found_on_path = shutil.which(f"python{minor}")
        yield from [Path(found_on_path)] if found_on_path else []
        return
    with contextlib.suppress(EnvironmentBuildError, OSError, subprocess.TimeoutExpired):
        environ = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
        found = subprocess.run(
            # Without --quiet, which would suppress the answer.
            [find_uv(), "python", "find", "--system", "--no-project", "--no-python-downloads", minor],
            env=environ | installer_variables(os.environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_TIMEOUT_S,
        )
        if found.returncode == 0:
            yield Path(found.stdout.strip())


@lru_cache(maxsize=64)
def _probe(candidate: Path, _changed_ns: int) -> FoundInterpreter | None:
    """Run an interpreter to learn its version; return None if it does not run. Cached until the file changes."""
    try:
        answer = subprocess.run(
            [candidate, "-E", "-s", "-c", _PROBE],  # as -I, which Python 2 does not have
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_PROBE_TIMEOUT_S,
        ).stdout
        version, executable, prefix = json.loads(answer)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    match = _PATCH.match(version)
    return FoundInterpreter(Path(executable).resolve(), match[0], Path(prefix).resolve()) if match else None


def _patch(python: Path) -> tuple[int, ...]:
    match = _PATCH.match(python.parts[-3])
    return tuple(map(int, match.groups())) if match else ()


def _number(minor: str) -> tuple[int, ...]:
    return tuple(map(int, minor.split(".")))
