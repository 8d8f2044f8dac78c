"""Instances of one machine communicate through a directory that only they can enter, without port or password."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidemill_runtime import channel
from tidemill_runtime.mpi.peers import Peers
from tidemill_runtime.mpi.sockets import connect, listen

if TYPE_CHECKING:
    import socket

    from tidemill_runtime.mpi.plan import Outcome


class DirectoryPeers(Peers):
    """`Peers` by sockets and files in the directory that all instances share."""

    def listen(self) -> socket.socket:
        return listen(self._directory / _socket_name(self._host))

    def _announce(self, notice: str, outcome: Outcome) -> None:
        """Wake the other instances, if they listen: the notice is in the directory already."""
        for host in self._others:
            with contextlib.suppress(OSError):  # the other instance may not have begun, or may have ended
                connection = self._connect(host)
                channel.send(connection, {})
                connection.close()

    def _connect(self, host: str) -> socket.socket:
        return connect(str(self._directory), _socket_name(host))

    def _run_by(self, connection: socket.socket, host: str, command: str) -> int:
        channel.send(connection, {"command": command}, descriptors=(0, 1, 2))
        message = channel.receive(connection)
        return int(message.content["status"]) if message else 1


def _socket_name(host: str) -> str:
    """File name of the socket of an instance's supervisor."""
    return f"{host}.sock"
