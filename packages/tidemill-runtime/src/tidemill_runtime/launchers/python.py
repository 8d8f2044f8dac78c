"""The plain launcher: a fresh process per script, by argument vector, for the three kinds of entry point."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from tidemill_runtime.code import COMMAND, PACKAGE
from tidemill_runtime.process import ColdChild

if TYPE_CHECKING:
    from pathlib import Path

    from tidemill_runtime.code import EntryPoint
    from tidemill_runtime.launchers.base import Script
    from tidemill_runtime.process import Child


class ColdLauncher:
    """Starts a fresh interpreter or command."""

    def start(self, script: Script, *, stderr_fd: int) -> Child:
        """Start the script in its own session and process group.

        Args:
            script: What to run and its variables.
            stderr_fd: Descriptor for standard error.

        Returns:
            The running process.
        """
        return ColdChild(script.argv, directory=script.directory, variables=script.variables, stderr_fd=stderr_fd)


def command_of(entry_point: EntryPoint, arguments: tuple[str, ...], *, python: str) -> tuple[str, ...]:
    """Return the argument vector of an entry point.

    Args:
        entry_point: File and kind. A command is made executable.
        python: Interpreter for scripts and packages.

    Returns:
        The argument vector, interpreter included.
    """
    if entry_point.kind == PACKAGE:
        name = entry_point.name[:-3] if entry_point.name.endswith(".py") else entry_point.name
        return (python, "-m", name.replace("/", "."), *arguments)
    if entry_point.kind == COMMAND:
        return (*_executable(entry_point.directory, entry_point.name), *arguments)
    return (python, "--", entry_point.name, *arguments)


def _executable(directory: Path, name: str) -> tuple[str, ...]:
    """Return the command as the kernel can run it: as given, or through sh if the file has no ``#!`` line."""
    path = directory / name
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o755)
    with path.open("rb") as file:
        magic = file.read(4)
    return (f"./{name}",) if magic.startswith((b"#!", b"\x7fELF")) else ("/bin/sh", f"./{name}")
