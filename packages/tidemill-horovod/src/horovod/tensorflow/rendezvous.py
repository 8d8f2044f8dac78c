"""Exchange small messages between ranks before they are connected: an allgather through their launcher."""

from __future__ import annotations

import hashlib
import hmac
import itertools
import os
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from horovod.tensorflow._shared.encryption.certificate import find_obstacle
from horovod.tensorflow._shared.encryption.tunnel import enclose
from horovod.tensorflow.communicator import Communicator

__all__ = [
    "CommunicatorRendezvous",
    "Launched",
    "LauncherRendezvous",
    "Rendezvous",
    "find_encryption_secret",
    "find_launched",
]

_LENGTH = struct.Struct("<I")
_MOST_BYTES = 1 << 24
_POLL_S = 0.02
_HANDSHAKE_S = 10.0
_SECRET_BYTES = 16
_numbers = itertools.count(1)


class Rendezvous(Protocol):
    """A group of processes that can exchange small messages until they are connected."""

    rank: int
    size: int

    def allgather(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, by rank. Collective."""
        ...


class CommunicatorRendezvous:
    """Ranks that have a `Communicator`."""

    def __init__(self, communicator: Communicator) -> None:
        self.rank = communicator.rank
        self.size = communicator.size
        self._communicator = communicator

    def allgather(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks."""
        gathered = self._communicator.allgather(np.frombuffer(message, np.uint8))
        return [np.asarray(array, np.uint8).tobytes() for array in gathered]


@dataclass(frozen=True)
class Launched:
    """The variables that tidemill's launcher sets in the environment of a rank."""

    rank: int
    size: int
    store: str
    """A directory that all ranks can access, or `host:port` of rank 0."""
    secret: bytes
    host: str
    """The address of this machine for other machines; empty if unknown."""


def find_launched(environment: Mapping[str, str] | None = None) -> Launched | None:
    """Return the variables of the launcher; None if this process was started otherwise.

    Args:
        environment: Environment variables. Default: those of the process.

    Raises:
        RuntimeError: If a variable of the launcher is missing or malformed.
    """
    variables = os.environ if environment is None else environment
    if "SMP_RANK" not in variables or "SMP_SIZE" not in variables or int(variables["SMP_SIZE"]) == 1:
        return None
    store, secret = variables.get("SMP_STORE", ""), variables.get("SMP_SECRET", "")
    try:
        launched = Launched(
            int(variables["SMP_RANK"]),
            int(variables["SMP_SIZE"]),
            store,
            bytes.fromhex(secret),
            variables.get("SMP_HOST", ""),
        )
    except ValueError as error:
        raise RuntimeError(f"hvd.init(): SMP_RANK, SMP_SIZE or SMP_SECRET is malformed: {error}") from error
    is_address = store.rpartition(":")[2].isdecimal() and ":" in store
    if len(launched.secret) < 16 or not (store.startswith("/") or is_address):
        raise RuntimeError(
            f"hvd.init(): SMP_RANK is set, SMP_STORE is {store!r} and SMP_SECRET has {len(secret)} digits; allowed is "
            "a directory or host:port of rank 0, and at least 32 hexadecimal digits"
        )
    return launched


def find_encryption_secret(environment: Mapping[str, str] | None = None) -> bytes | None:
    """Return the secret by which connections between machines are encrypted; None if they are not.

    Args:
        environment: Environment variables. Default: those of the process.

    Raises:
        RuntimeError: If SMP_ENCRYPTION or SMP_SECRET is missing or malformed, or a package for TLS is missing.
    """
    variables = os.environ if environment is None else environment
    wanted = variables.get("SMP_ENCRYPTION", "0")
    if wanted not in ("", "0", "1"):
        raise RuntimeError(f"hvd.init(): SMP_ENCRYPTION is {wanted!r}; allowed is 0 or 1")
    if wanted != "1":
        return None
    obstacle = find_obstacle()
    if obstacle:
        raise RuntimeError(f"hvd.init(): SMP_ENCRYPTION is 1: {obstacle}")
    try:
        secret = bytes.fromhex(variables.get("SMP_SECRET", ""))
    except ValueError:
        secret = b""
    if len(secret) < _SECRET_BYTES:
        raise RuntimeError(
            "hvd.init(): SMP_ENCRYPTION is 1 and SMP_SECRET is missing or too short; allowed are at least "
            f"{2 * _SECRET_BYTES} hexadecimal digits, the same on all ranks"
        )
    return secret


class LauncherRendezvous:
    """Ranks that tidemill's launcher started."""

    def __init__(self, launched: Launched, *, timeout_s: float) -> None:
        self.rank = launched.rank
        self.size = launched.size
        self._launched = launched
        self._timeout_s = timeout_s
        self._number = next(_numbers)
        self._calls = 0

    def allgather(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks.

        Raises:
            RuntimeError: If ranks are missing at the time limit.
        """
        self._calls += 1
        deadline_s = time.monotonic() + self._timeout_s
        if self._launched.store.startswith("/"):
            return self._by_directory(message, deadline_s)
        return self._by_address(message, deadline_s)

    def _by_directory(self, message: bytes, deadline_s: float) -> list[bytes]:
        # The secret distinguishes launches, and a number the calls of hvd.init in one launch.
        launch = hashlib.sha256(b"horovod" + self._launched.secret).hexdigest()[:16]
        directory = Path(self._launched.store)
        names = [f"horovod.{launch}.{self._number}.{self._calls}.{rank}" for rank in range(self.size)]
        own = directory / names[self.rank]
        beside = own.with_name(f".{own.name}.new")
        beside.write_bytes(message)
        beside.replace(own)
        while True:
            missing = [rank for rank, name in enumerate(names) if not (directory / name).exists()]
            if not missing:
                return [(directory / name).read_bytes() for name in names]
            self._require_time(deadline_s, missing)
            time.sleep(_POLL_S)

    def _by_address(self, message: bytes, deadline_s: float) -> list[bytes]:
        host, _, port = self._launched.store.rpartition(":")
        if self.rank == 0:
            return self._gather(int(port), message, deadline_s)
        return self._send_to_first(host, int(port), message, deadline_s)

    def _gather(self, port: int, message: bytes, deadline_s: float) -> list[bytes]:
        messages = {0: message}
        connections = []
        with socket.create_server(("", port), backlog=self.size, reuse_port=False) as server:
            while len(messages) < self.size:
                self._require_time(deadline_s, [rank for rank in range(self.size) if rank not in messages])
                server.settimeout(1.0)
                with suppress(TimeoutError):
                    connection, _ = server.accept()
                    connection.settimeout(_HANDSHAKE_S)
                    with suppress(OSError, EOFError):
                        connection = self._secured(connection, server=True)
                        if not hmac.compare_digest(_read(connection), self._launched.secret):
                            connection.close()
                            continue
                        (rank,) = _LENGTH.unpack(_read(connection))
                        messages[rank] = _read(connection)
                        connections.append(connection)
        ordered = [messages[rank] for rank in range(self.size)]
        for connection in connections:
            with connection:
                for one in ordered:
                    _write(connection, one)
        return ordered

    def _send_to_first(self, host: str, port: int, message: bytes, deadline_s: float) -> list[bytes]:
        while True:
            try:
                with self._secured(socket.create_connection((host, port), timeout=5.0), server=False) as connection:
                    connection.settimeout(max(1.0, deadline_s - time.monotonic()))
                    for part in (self._launched.secret, _LENGTH.pack(self.rank), message):
                        _write(connection, part)
                    return [_read(connection) for _ in range(self.size)]
            except (OSError, EOFError):
                self._require_time(deadline_s, [0])
                time.sleep(_POLL_S)

    def _secured(self, connection: socket.socket, *, server: bool) -> socket.socket:
        secret = find_encryption_secret()
        if secret is None:
            return connection
        enclosed = enclose(connection, secret, server=server, timeout_s=_HANDSHAKE_S)
        enclosed.settimeout(_HANDSHAKE_S)
        return enclosed

    def _require_time(self, deadline_s: float, missing: list[int]) -> None:
        if time.monotonic() > deadline_s:
            raise RuntimeError(
                f"hvd.init(): rank {self.rank} has waited {self._timeout_s:g} s for ranks {missing} at "
                f"{self._launched.store}: call hvd.init() on all ranks (HOROVOD_START_TIMEOUT sets the limit)"
            )


def _write(connection: socket.socket, data: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(data)) + data)


def _read(connection: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_read_exactly(connection, _LENGTH.size))
    if size > _MOST_BYTES:
        raise EOFError(f"a message of {size} bytes")
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the connection has ended")
        data += part
    return data
