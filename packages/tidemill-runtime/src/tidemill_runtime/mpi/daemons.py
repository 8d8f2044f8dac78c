"""MPI's daemons on this instance, started for an mpirun on another instance with a command as for ssh."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

from tidemill_runtime import channel
from tidemill_runtime.process import begin_afresh

if TYPE_CHECKING:
    from collections.abc import Mapping


class Daemon:
    """One daemon.

    Args:
        connection: Connection to the process that mpirun takes for the daemon.
        message: The command and streams of the daemon.
        variables: The whole environment.
    """

    def __init__(self, connection: socket.socket, message: channel.Message, *, variables: Mapping[str, str]) -> None:
        self.connection = connection
        streams = message.descriptors
        self._process = subprocess.Popen(
            # mpirun writes the command for a login shell, as ssh would start one; no part of it comes from the user.
            ["/bin/sh", "-c", str(message.content["command"])],
            env=dict(variables),
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
            preexec_fn=begin_afresh(os.getpid()),  # safe: the supervisor has one thread
        )

    def poll(self) -> int | None:
        """Return the exit status, and send it to mpirun, when the daemon has ended; None before."""
        status = self._process.poll()
        if status is not None and self.connection.fileno() >= 0:
            with contextlib.suppress(OSError):
                channel.send(self.connection, {"status": status if status >= 0 else 128 - status})
            self.connection.close()
        return status

    def signal(self, number: int) -> None:
        """Send a signal to its process group.

        Args:
            number: Number of the signal; no effect after the daemon's end.
        """
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)
