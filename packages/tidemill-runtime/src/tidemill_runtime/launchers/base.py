"""The seam between a job and the way its script is started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Protocol

    from tidemill_runtime.process import Child
else:
    Protocol = object  # missing in Python 3.7, and only needed by type checkers

__all__ = ["Launcher", "Script"]


@dataclass(frozen=True)
class Script:
    """What is to run.

    Attributes:
        argv: Argument vector, interpreter included.
        shown: ``argv`` with secrets masked, for the log and the failure report.
        directory: Working directory.
        variables: The whole environment.
        plain_file: The Python file if the command is just ``python -- FILE ARGUMENTS`` in the base environment; else
        empty. Only such a script can be started by something other than exec.
    """

    argv: tuple[str, ...]
    shown: tuple[str, ...]
    directory: Path
    variables: Mapping[str, str]
    plain_file: str = ""


class Launcher(Protocol):
    """Starts the script of one instance, and the processes that it needs beside it."""

    def start(self, script: Script, *, stderr_fd: int) -> Child:
        """Start the script in its own session and process group.

        Args:
            script: What is to run. Standard output is inherited.
            stderr_fd: Its standard error; the caller closes its own copy.

        Raises:
            LaunchError: It cannot be started.
        """
