"""The process that requests a script: its verified identity and its rights."""

from __future__ import annotations

import os
import resource
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill_runtime.channel import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMITS = tuple(sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}))


class WarmRefusal(Exception):
    """The script cannot be started warm; the text is the reason."""


@dataclass(frozen=True)
class Peer:
    """A process, held by a descriptor of its /proc directory, so that a reused process id is noticed.

    Attributes:
        pid: Process id in the zygote's pid namespace.
        directory_fd: Descriptor of ``/proc/PID``.
    """

    pid: int
    directory_fd: int

    @classmethod
    def of(cls, connection: socket.socket) -> Peer:
        """Return the process at the other end of a connection.

        Raises:
            Refused: The process belongs to another user, or has exited.
        """
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        pid, uid, _ = CREDENTIALS.unpack(data)
        if uid != os.geteuid():
            raise WarmRefusal(f"user {uid} asked; only user {os.geteuid()} may")
        try:
            return cls(pid, os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            raise WarmRefusal(f"process {pid} cannot be examined: {error.strerror}") from error

    def confirm(self, sender_pid: int) -> None:
        """Check that the held process sent the request and is still alive.

        Raises:
            Refused: The process id was reused; continuing could leave the sandbox.
        """
        if sender_pid != self.pid:
            raise WarmRefusal(f"process {sender_pid} asked over a connection of process {self.pid}")
        self.status()

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of the process's /proc directory.

        Args:
            name: Path relative to ``/proc/PID``.
            flags: Of `os.open`; ``O_CLOEXEC`` is added. Default: read only.

        Returns:
            A descriptor, which the caller closes.

        Raises:
            Refused: If the file cannot be opened.
        """
        try:
            return os.open(name, flags | os.O_CLOEXEC, dir_fd=self.directory_fd)
        except OSError as error:
            raise WarmRefusal(f"{name} of process {self.pid} cannot be opened: {error.strerror}") from error

    def read(self, name: str) -> str:
        """Read a file of the process's /proc directory.

        Args:
            name: Path relative to ``/proc/PID``.

        Returns:
            UTF-8 text; damaged bytes are replaced.

        Raises:
            Refused: If the file cannot be read.
        """
        fd = self.open(name)
        try:
            with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError as error:
            raise WarmRefusal(f"{name} of process {self.pid} cannot be read: {error.strerror}") from error

    def status(self) -> Mapping[str, str]:
        """The fields of its ``status`` file."""
        lines = (line.partition(":") for line in self.read("status").splitlines())
        return {name: value.strip() for name, _, value in lines}

    def limits(self) -> dict[int, tuple[int, int]]:
        """Its resource limits."""
        return {kind: resource.prlimit(self.pid, kind) for kind in LIMITS}
