"""The other instances of a job, from the view of one supervisor, and the notices that instances exchange."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tidemill_runtime.mpi.plan import Outcome

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE_S = 1200.0
"""Time for all instances to begin, as on SageMaker: some may have to install their requirements."""
_LOOK_S = 0.1


class Peers(ABC):
    """The other instances of a job: reached by a directory on one machine, by TCP on several.

    A notice has a name, e.g. ``failed``, and contains an outcome. The first notice of each name is kept.

    Args:
        directory: Directory of sockets and notices.
        host: Name of this instance.
        others: Names of the other instances.
    """

    def __init__(self, directory: Path, *, host: str, others: Sequence[str]) -> None:
        self._directory = directory
        self._host = host
        self._others = others

    @abstractmethod
    def listen(self) -> socket.socket:
        """Return the unix socket at which commands for MPI's daemons arrive, each with its three streams.

        An empty message announces a new notice.
        """

    def notify(self, notice: str, outcome: Outcome) -> None:
        """Publish a notice to all instances, including this one, without waiting for them.

        Args:
            outcome: How the job ended.
        """
        write_notice(self._directory, notice, outcome, sender=self._host)
        self._announce(notice, outcome)

    def read_notice(self, notice: str) -> Outcome | None:
        """Return the notice of that name, if any.

        Returns:
            The outcome; None without the notice.
        """
        return read_notice(self._directory, notice)

    def run(self, host: str, command: str) -> int:
        """Run a command on another instance, after it has begun; its output goes to this process's.

        Args:
            host: Name of the instance.
            command: A command for a shell.

        Returns:
            Exit status of the command; 1 if the instance did not begin in time.
        """
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection = self._connect(host)
                break
            except OSError as error:
                if time.monotonic() > until:
                    sys.stderr.write(f"tidemill: {host} did not begin within {PATIENCE_S:.0f} s: {error}\n")
                    return 1
            time.sleep(_LOOK_S)
        return self._run_by(connection, host, command)

    def close(self) -> None:  # noqa: B027 - nothing is pending if notices are files of one machine
        """Deliver pending notices to instances that may wait for them. Default: there are none."""

    @abstractmethod
    def _announce(self, notice: str, outcome: Outcome) -> None:
        """Bring a notice of this instance to the others."""

    @abstractmethod
    def _connect(self, host: str) -> Any:
        """Return a connection to an instance.

        Raises:
            OSError: The instance does not listen.
        """

    @abstractmethod
    def _run_by(self, connection: Any, host: str, command: str) -> int:
        """Run a command at the other end of a connection, and return its exit status."""


def write_notice(directory: Path, notice: str, outcome: Outcome, *, sender: str) -> None:
    """Write a notice, unless there is one of that name.

    Args:
        directory: A directory that all instances share.
        outcome: How the job ended.
    """
    own = directory / f"{notice}.json.{sender}"
    outcome.write(own)
    with contextlib.suppress(FileExistsError):
        os.link(str(own), str(directory / f"{notice}.json"))


def read_notice(directory: Path, notice: str) -> Outcome | None:
    """Return the notice of that name, if any.

    Args:
        directory: A directory that all instances share.

    Returns:
        The outcome; None without the notice.
    """
    try:
        return Outcome.read(directory / f"{notice}.json")
    except FileNotFoundError:
        return None
