"""Stores through which ranks exchange their addresses before they are connected."""

from __future__ import annotations

import os
import shutil
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from smdistributed.modelparallel.backend.exceptions import SMPDeadlockError, SMPError
from smdistributed.modelparallel.tensorflow.world import wire
from smdistributed.modelparallel.tensorflow.world.encryption import ENCRYPTION_VARIABLE, secured

__all__ = ["DirectoryStore", "MPIStore", "Store", "TCPStore", "connect_until"]

_POLL_S = 0.01
_HANDSHAKE_S = 10.0


class Store(Protocol):
    """Exchanges small values among all ranks."""

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Return the values of all ranks, by rank. All ranks use the same topics in the same order."""
        ...

    def close(self) -> None:
        """Clean up, after every rank has finished the exchange."""
        ...


class DirectoryStore:
    """Exchanges files in a directory that only this user can access, for ranks on one machine."""

    def __init__(self, directory: Path, *, rank: int, size: int, timeout_s: float, is_owned: bool = False) -> None:
        self._directory = directory
        self._is_owned = is_owned
        self._rank = rank
        self._size = size
        self._timeout_s = timeout_s

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Write this rank's file, then read the files of all ranks."""
        own = self._directory / f"{topic}.{self._rank}"
        fresh = own.with_name(f".{own.name}.{os.getpid()}")
        fresh.write_bytes(value)
        fresh.chmod(0o600)
        fresh.replace(own)
        deadline = time.monotonic() + self._timeout_s
        return [self._read(topic, rank, deadline) for rank in range(self._size)]

    def close(self) -> None:
        """Remove the directory, unless the launcher does it."""
        if self._is_owned and self._rank == 0:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _read(self, topic: str, rank: int, deadline: float) -> bytes:
        path = self._directory / f"{topic}.{rank}"
        while True:
            try:
                return path.read_bytes()
            except FileNotFoundError:
                if time.monotonic() > deadline:
                    raise _missing([rank], self._timeout_s, f"in {self._directory}") from None
                time.sleep(_POLL_S)  # another process writes the file, and there is no portable notification


class MPIStore:
    """Exchanges values with mpi4py's allgather."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Return the values of all ranks, with one collective MPI call."""
        return [answer for _, answer in self._communicator.allgather((topic, value))]

    def close(self) -> None:
        """Do nothing, since MPI is finalized when the process ends."""


class TCPStore:
    """Exchanges values through rank 0, which listens at an address known to all ranks."""

    def __init__(self, host: str, port: int, *, secret: bytes, rank: int, size: int, timeout_s: float) -> None:
        self._rank = rank
        self._size = size
        self._address = f"{host}:{port}"
        self._timeout_s = timeout_s
        self._connections: dict[int, socket.socket] = {}
        deadline = time.monotonic() + timeout_s
        if rank == 0:
            self._gather_connections(host, port, secret, deadline)
        else:
            connection = connect_until(socket.AF_INET, (host, port), deadline)
            try:
                connection = secured(connection, secret, server=False, timeout_s=_HANDSHAKE_S)
            except OSError as error:
                raise SMPError(
                    f"rank {rank} cannot meet the others at {self._address}: {error}; {ENCRYPTION_VARIABLE} and "
                    "SMP_SECRET must be the same on all ranks"
                ) from error
            wire.introduce(connection, secret=secret, rank=rank, purpose=wire.Purpose.STORE)
            self._connections[0] = connection

    def _gather_connections(self, host: str, port: int, secret: bytes, deadline: float) -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server((host, port), backlog=self._size))
            while len(self._connections) < self._size - 1:
                listener.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    absent = sorted(set(range(1, self._size)) - set(self._connections))
                    raise _missing(absent, self._timeout_s, f"at {self._address}") from None
                connection.settimeout(_HANDSHAKE_S)
                try:
                    connection = secured(connection, secret, server=True, timeout_s=_HANDSHAKE_S)
                    hello = wire.accept(connection, secret=secret, rank=0)
                except (wire.HandshakeError, OSError):
                    connection.close()  # not a rank of this job
                    continue
                self._connections[hello.rank] = connection

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Send the value to rank 0, and receive the list of all values."""
        try:
            for connection in self._connections.values():
                connection.settimeout(self._timeout_s)
            if self._rank == 0:
                values = {0: value}
                for rank, connection in self._connections.items():
                    values[rank] = bytes(wire.read_frame(connection).payload)
                answers = [values[rank] for rank in range(self._size)]
                for connection in self._connections.values():
                    for answer in answers:
                        wire.send_frame(connection, wire.Kind.MESSAGE, 0, answer)
                return answers
            wire.send_frame(self._connections[0], wire.Kind.MESSAGE, 0, value)
            return [bytes(wire.read_frame(self._connections[0]).payload) for _ in range(self._size)]
        except (OSError, EOFError) as error:
            raise SMPError(f"rank {self._rank} lost the rendezvous at {self._address} ({topic}): {error}") from error

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()


def connect_until(family: int, address: Any, deadline: float) -> socket.socket:
    """Connect to an address; retry until the deadline if nothing listens there yet."""
    while True:
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            connection.connect(address)
        except (ConnectionRefusedError, FileNotFoundError, TimeoutError, BlockingIOError) as error:
            connection.close()
            if time.monotonic() > deadline:
                raise SMPDeadlockError(f"nobody listens at {address}: {error}") from error
            time.sleep(_POLL_S)
        else:
            return connection


def _missing(ranks: list[int], timeout_s: float, where: str) -> SMPDeadlockError:
    return SMPDeadlockError(
        f"ranks {ranks} did not report {where} within {timeout_s:g} s: see what they print, and that every rank "
        "calls smp.init()"
    )
