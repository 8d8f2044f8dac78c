"""The interface between a job and the launcher that starts its script."""

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


@dataclass(frozen=True)
class Script:
    """The command to run.

    Attributes:
        argv: Argument vector, interpreter included.
        shown: ``argv`` with secrets masked, for the log and the failure report.
        directory: Working directory.
        variables: The whole environment.
        plain_file: The Python file if the command is just ``python -- FILE ARGUMENTS`` in the base environment; else
            empty. Only such a script can be forked from a running interpreter.
    """

    argv: tuple[str, ...]
    shown: tuple[str, ...]
    directory: Path
    variables: Mapping[str, str]
    plain_file: str = ""


class Launcher(Protocol):
    """Starts the script of one instance, and further processes that the distribution needs."""

    def start(self, script: Script, *, stderr_fd: int) -> Child:
        """Start the script in its own session and process group.

        Args:
            script: The command to run. It inherits standard output.
            stderr_fd: Descriptor for its standard error; the caller closes its own copy.

        Returns:
            The started process.

        Raises:
            LaunchError: The script cannot be started.
        """
