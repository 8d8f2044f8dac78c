"""Exchange small values between ranks that are not connected yet: through rank 0, at a place that all ranks know."""

from __future__ import annotations

import hashlib
import socket
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from .connections import PeerListener, call
from .environment import RankInfo
from .errors import MissingRanksError, RanksError, RankSettingError
from .messages import read_message, send_message

if TYPE_CHECKING:
    from .connections import Address

_CHANNEL = "store"
_GRACE_S = 5.0
"""How much longer the others wait than rank 0, which tells them which ranks are missing."""


class Store:
    """A connection between rank 0 and every other rank.

    Args:
        where: `host:port` of rank 0, or, for ranks of one machine, the path of anything that only they have in common.
        info: Rank and size of this process; several ranks.
        secret: The job's secret; empty if being processes of one user is enough.
        name: Distinguishes this store from others of the job at the same path.
        timeout_s: Time limit to connect, and of each exchange, in seconds.

    Raises:
        RankSettingError: If `where` is neither.
        MissingRanksError: If ranks do not connect in time.
        RanksError: If rank 0 cannot listen, or the other end is no rank of this job.
    """

    def __init__(self, where: str, info: RankInfo, *, secret: bytes, name: str, timeout_s: float) -> None:
        self._rank = info.rank
        self._size = info.size
        self._where = where
        address = _address(where, secret, name)
        if info.rank > 0:
            deadline_s = time.monotonic() + timeout_s
            try:
                first = call(address, secret=secret, rank=info.rank, peer=0, channel=_CHANNEL, deadline_s=deadline_s)
            except MissingRanksError as error:
                raise MissingRanksError(self._missing([0], timeout_s)) from error
            first.settimeout(timeout_s + _GRACE_S)
            self._connections = {0: first}
            missing = self._read(first).decode()
            if missing:
                self.close()
                raise MissingRanksError(missing)
        else:
            self._connections = self._accept_all(address, secret, timeout_s)

    def allgather(self, value: bytes) -> list[bytes]:
        """Return the values of all ranks, by rank. Collective.

        Raises:
            RanksError: If a rank ends, or does not answer in time.
        """
        if self._rank > 0:
            self._send(self._connections[0], value)
            return [self._read(self._connections[0]) for _ in range(self._size)]
        values = [value, *(self._read(self._connections[rank]) for rank in range(1, self._size))]
        for connection in self._connections.values():
            for one in values:
                self._send(connection, one)
        return values

    def close(self) -> None:
        """Close the connections, after every rank has finished the exchange."""
        for connection in self._connections.values():
            connection.close()

    def _accept_all(self, address: Address, secret: bytes, timeout_s: float) -> dict[int, socket.socket]:
        others = range(1, self._size)
        deadline_s = time.monotonic() + timeout_s
        with closing(PeerListener(secret=secret, rank=0, expected=[(rank, _CHANNEL) for rank in others])) as listener:
            listener.listen(address)
            connections = {rank: connection for (rank, _), connection in listener.wait(deadline_s).items()}
        absent = sorted(set(others) - set(connections))
        missing = self._missing(absent, timeout_s) if absent else ""
        for connection in connections.values():
            connection.settimeout(timeout_s)
            with suppress(OSError):
                send_message(connection, missing.encode())
            if missing:
                connection.close()
        if missing:
            raise MissingRanksError(missing)
        return connections

    def _missing(self, ranks: list[int], timeout_s: float) -> str:
        return (
            f"ranks {ranks} did not report at {self._where} within {timeout_s:g} s: see what they print, and that "
            "every rank initializes the library"
        )

    def _send(self, connection: socket.socket, value: bytes) -> None:
        try:
            send_message(connection, value)
        except OSError as error:
            raise self._lost(error) from error

    def _read(self, connection: socket.socket) -> bytes:
        try:
            return read_message(connection)
        except (OSError, EOFError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> RanksError:
        return RanksError(f"rank {self._rank} lost the other ranks at {self._where} before all were connected: {error}")


def _address(where: str, secret: bytes, name: str) -> Address:
    if where.startswith("/"):
        # Two jobs with the same path have different secrets.
        return f"{name}-{hashlib.sha256(where.encode() + secret).hexdigest()}"
    host, colon, port = where.rpartition(":")
    if not colon or not port.isdecimal():
        raise RankSettingError(f"SMP_STORE is {where!r}; allowed is host:port, or a path for ranks of one machine")
    return host, int(port)
