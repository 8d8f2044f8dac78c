"""Start a plain script from the zygote if this changes nothing but the start time; start it cold otherwise."""

from __future__ import annotations

import os
import select
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill_runtime import channel
from tidemill_runtime.events import emit
from tidemill_runtime.launchers.python import ColdLauncher
from tidemill_runtime.process import Child

if TYPE_CHECKING:
    from tidemill_runtime.launchers.base import Script

ANSWER_TIMEOUT_S = 10
KILLED = -9


class _Cold(Exception):
    """The script must be started cold; the text says why."""


class WarmChild(Child):
    """A script that a guard of the zygote started.

    Args:
        connection: Connection to the guard, which ends the script when the connection closes.
        pid: Process id of the script, in this process's pid namespace.
    """

    def __init__(self, connection: socket.socket, *, pid: int) -> None:
        self.pid = pid
        self._connection = connection
        self._exit_code: int | None = None

    def fileno(self) -> int:
        """The connection, readable when the script has ended."""
        return self._connection.fileno() if self._exit_code is None else -1

    def exit_code(self) -> int | None:
        """Return the exit code when the guard has sent it; None before."""
        if self._exit_code is None and select.select([self._connection], [], [], 0)[0]:
            try:
                message = channel.receive(self._connection)
            except (OSError, ValueError):
                message = None
            # If the guard was killed, the kernel has killed the script with it.
            self._exit_code = message.content["exit_code"] if message else KILLED
        return self._exit_code


class WarmLauncher:
    """Starts scripts from the zygote if possible.

    Args:
        path: The zygote's socket.
        num_gpus: Number of GPUs of the instance; with any GPU, scripts are never forked.
    """

    def __init__(self, path: Path, *, num_gpus: int) -> None:
        self._path = path
        self._num_gpus = num_gpus

    def start(self, script: Script, *, stderr_fd: int) -> Child:
        """Start the script in its own session and process group.

        Args:
            script: What to run and its variables.
            stderr_fd: Descriptor for standard error.

        Returns:
            The process: forked from the warm one, or started cold if that one does not answer or refuses.
        """
        try:
            self._check(script)
            return self._start_warm(script, stderr_fd)
        except _Cold as reason:
            emit("warm.skipped", reason=str(reason))
        return ColdLauncher().start(script, stderr_fd=stderr_fd)

    def _check(self, script: Script) -> None:
        if not script.plain_file:
            raise _Cold("only a Python script in the base environment, without requirements, can be forked")
        if self._num_gpus:
            raise _Cold("the instance has GPUs, whose driver does not survive a fork")
        if (script.directory / script.plain_file).is_symlink():
            raise _Cold("the entry point is a symbolic link")
        if os.isatty(1):
            raise _Cold("standard output is a terminal")
        home = script.variables.get("HOME", "")
        if home and (Path(home) / ".keras" / "keras.json").exists():
            raise _Cold("Keras reads its configuration in HOME while it is imported")

    def _start_warm(self, script: Script, stderr_fd: int) -> Child:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.connect(str(self._path))
            pid = _request(connection, script, stderr_fd)
            connection.settimeout(None)
        except (OSError, ValueError) as error:
            connection.close()
            raise _Cold(f"the warm process does not answer: {error}") from error
        except _Cold:
            connection.close()
            raise
        return WarmChild(connection, pid=pid)


def _request(connection: socket.socket, script: Script, stderr_fd: int) -> int:
    """Return the pid of the script that the guard started."""
    hello = _receive(connection)
    if hello.get("protocol") != 1 or (hello.get("executable"), hello.get("prefix")) != (sys.executable, sys.prefix):
        raise _Cold(f"the warm process runs in {hello.get('prefix')}, the job in {sys.prefix}")
    content = {
        "argv": list(script.argv),
        "directory": str(script.directory),
        "file": script.plain_file,
        "variables": dict(script.variables),
    }
    stdin_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        channel.send(connection, content, descriptors=(stdin_fd, 1, stderr_fd))
    finally:
        os.close(stdin_fd)
    return int(_receive(connection)["pid"])


def _receive(connection: socket.socket) -> dict[str, Any]:
    message = channel.receive(connection)
    if message is None:
        raise _Cold("the warm process gave up")
    if "refused" in message.content:
        raise _Cold(str(message.content["refused"]))
    return message.content
