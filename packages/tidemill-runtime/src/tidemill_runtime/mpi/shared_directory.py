"""Instances of one machine communicate through a directory that only they can enter, without port or password."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

from tidemill_runtime import channel
from tidemill_runtime.mpi.plan import Outcome
from tidemill_runtime.mpi.sockets import connect, listen

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path

PATIENCE_S = 1200.0
"""Time for all instances to begin, as on SageMaker: some may have to install their requirements."""
_LOOK_S = 0.1


class DirectoryPeers:
    """`Peers` by sockets and files in one directory.

    Args:
        directory: The directory that all instances share.
    """

    def __init__(self, directory: Path, *, host: str, others: Sequence[str]) -> None:
        self._directory = directory
        self._host = host
        self._others = others

    def listen(self) -> socket.socket:
        return listen(self._directory / _socket_name(self._host))

    def notify(self, notice: str, outcome: Outcome) -> None:
        """Write a notice and wake the other instances, if they listen, as `Peers.notify`."""
        write_notice(self._directory, notice, outcome, sender=self._host)
        for host in self._others:
            with contextlib.suppress(OSError):  # the other instance may not have begun, or may have ended
                connection = connect(str(self._directory), _socket_name(host))
                channel.send(connection, {})
                connection.close()

    def read_notice(self, notice: str) -> Outcome | None:
        """Return a notice of the shared directory, or None.

        Args:
            notice: Name of the notice.
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
                connection = connect(str(self._directory), _socket_name(host))
                break
            except OSError as error:
                if time.monotonic() > until:
                    sys.stderr.write(f"tidemill: {host} did not begin within {PATIENCE_S:.0f} s: {error}\n")
                    return 1
            time.sleep(_LOOK_S)
        channel.send(connection, {"command": command}, descriptors=(0, 1, 2))
        message = channel.receive(connection)
        return int(message.content["status"]) if message else 1

    def close(self) -> None:
        """Do nothing: the notices are already in the shared directory."""


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


def _socket_name(host: str) -> str:
    """File name of the socket of an instance's supervisor."""
    return f"{host}.sock"
