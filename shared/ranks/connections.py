"""Open and accept connections whose other end has proved to be a rank of this job.

Ranks of one machine use unix sockets with an abstract name, so no file remains, however a rank ends. Others use TCP,
encrypted if `SMP_ENCRYPTION` is 1.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..encryption.tunnel import enclose  # noqa: TID252 - the package above has another name in each copy
from .environment import encrypts
from .errors import MissingRanksError, RanksError
from .handshake import HandshakeError, accept, introduce

if TYPE_CHECKING:
    from collections.abc import Collection

    Address = str | tuple[str, int]
    """The abstract name of a unix socket, without the leading zero; or host and port."""

_POLL_S = 0.01
_HANDSHAKE_S = 30.0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group


def call(address: Address, *, secret: bytes, rank: int, peer: int, channel: str, deadline_s: float) -> socket.socket:
    """Connect to a rank; retry until the deadline if it does not listen yet.

    Args:
        peer: The rank that listens there.
        channel: What the connection is for, in at most 10 bytes.
        deadline_s: Time limit, on the clock of `time.monotonic`.

    Raises:
        MissingRanksError: If nothing listens at the address.
        RanksError: If the other end is not that rank, or does not encrypt as this one does.
    """
    connection = _connect(address, peer, deadline_s)
    try:
        connection.settimeout(_HANDSHAKE_S)
        connection = _secured(connection, secret, server=False)
        other = introduce(connection, secret=secret, rank=rank, channel=channel)
        if other.rank != peer:
            raise HandshakeError(f"rank {other.rank} answers instead: do two jobs share one rendezvous?")
    except (OSError, HandshakeError) as error:
        connection.close()
        raise RanksError(
            f"rank {rank} cannot connect to rank {peer}: {error}; SMP_ENCRYPTION and SMP_SECRET must be the same on "
            "all ranks"
        ) from error
    return connection


def _connect(address: Address, peer: int, deadline_s: float) -> socket.socket:
    while True:
        left_s = max(0.01, deadline_s - time.monotonic())
        try:
            if not isinstance(address, str):
                return socket.create_connection(address, timeout=left_s)
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.settimeout(left_s)
                connection.connect(f"\0{address}")
            except OSError:
                connection.close()
                raise
            return connection
        except OSError as error:  # e.g. the other machine is not up, or does not listen yet
            if time.monotonic() > deadline_s:
                raise MissingRanksError(f"rank {peer} cannot be reached at {_text(address)}: {error}") from error
            time.sleep(_POLL_S)


class PeerListener:
    """Accepts the expected connections, in threads, so that a peer that says nothing delays no other."""

    def __init__(self, *, secret: bytes, rank: int, expected: Collection[tuple[int, str]]) -> None:
        """Expect connections, by rank and channel, of peers that know the secret."""
        self._secret = secret
        self._rank = rank
        self._expected = frozenset(expected)
        self._arrived: dict[tuple[int, str], socket.socket] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._sockets: list[socket.socket] = []

    def listen(self, address: Address) -> Address:
        """Listen at an address of this machine; return it, with the port that the system chose if the port is 0.

        Raises:
            RanksError: If this is not possible.
        """
        try:
            if isinstance(address, str):
                listening = socket.socket(socket.AF_UNIX)
                self._sockets.append(listening)
                listening.bind(f"\0{address}")
                listening.listen(len(self._expected))
            else:
                listening = socket.socket(socket.AF_INET)  # socket.create_server needs Python 3.8
                self._sockets.append(listening)
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.bind(address)
                listening.listen(len(self._expected))
                address = address[0], listening.getsockname()[1]
        except OSError as error:
            raise RanksError(f"rank {self._rank} cannot listen at {_text(address)}: {error}") from error
        threading.Thread(target=self._accept_all, args=(listening,), name="rank-listener", daemon=True).start()
        return address

    def wait(self, deadline_s: float) -> dict[tuple[int, str], socket.socket]:
        """Wait for the expected connections, and hand over those that have come by the deadline."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._arrived.keys() == self._expected, max(0.0, deadline_s - time.monotonic())
            )
            arrived = self._arrived.copy()
            self._arrived.clear()
            return arrived

    def close(self) -> None:
        """Stop listening, and close connections that nobody has waited for."""
        with self._changed:
            self._closed = True
            for connection in self._arrived.values():
                connection.close()
        for listening in self._sockets:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
            listening.close()

    def _accept_all(self, listening: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._accept, args=(connection,), daemon=True).start()

    def _accept(self, connection: socket.socket) -> None:
        connection.settimeout(_HANDSHAKE_S)
        try:
            connection = _secured(connection, self._secret, server=True)
            hello = accept(connection, secret=self._secret, rank=self._rank)
        except (HandshakeError, OSError, ValueError):
            connection.close()  # a stranger, or a rank that died
            return
        with self._changed:
            if hello not in self._expected or hello in self._arrived or self._closed:
                connection.close()
                return
            self._arrived[hello] = connection
            self._changed.notify_all()


def _text(address: Address) -> str:
    return address if isinstance(address, str) else f"{address[0]}:{address[1]}"


def _secured(connection: socket.socket, secret: bytes, *, server: bool) -> socket.socket:
    """Return the socket to use in place of an owned connection.

    Raises:
        OSError: If the other end does not encrypt as this one does, or is a process of another user.
    """
    if connection.family == socket.AF_UNIX:
        # Abstract names have no file mode, so every user of the machine can connect.
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)
        if user != os.getuid():
            raise PermissionError(f"the other end is a process of user {user}")
        return connection
    if not encrypts():
        return connection
    enclosed = enclose(connection, secret, server=server, timeout_s=_HANDSHAKE_S)
    enclosed.settimeout(_HANDSHAKE_S)
    return enclosed
