"""Connect every two ranks: unix sockets on one machine, TCP between machines."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from smdistributed.modelparallel.backend.exceptions import SMPDeadlockError, SMPError
from smdistributed.modelparallel.tensorflow.world import wire
from smdistributed.modelparallel.tensorflow.world.encryption import ENCRYPTION_VARIABLE, secured
from smdistributed.modelparallel.tensorflow.world.rendezvous import Rendezvous
from smdistributed.modelparallel.tensorflow.world.stores import connect_until

__all__ = ["SOCKETS_VARIABLE", "Mesh", "connect_all"]

SOCKETS_VARIABLE = "SMP_SOCKETS"
"""`unix` (default: unix sockets between ranks of one machine) or `tcp` (TCP on one machine too)."""
_BUFFER_BYTES = 4 << 20
_HANDSHAKE_S = 30.0


@dataclass(frozen=True)
class Mesh:
    """The connections of one rank, after their handshakes."""

    objects: dict[int, socket.socket]
    """By peer, for Python objects."""
    tensors: dict[int, socket.socket]
    """By peer, for tensors."""
    machines: tuple[str, ...]
    """The machine of each rank, by rank."""


def connect_all(rendezvous: Rendezvous, *, timeout_s: float) -> Mesh:
    """Connect this rank to all others. Collective.

    Raises:
        SMPDeadlockError: If another rank does not connect in time.
    """
    machines = tuple(
        json.loads(text) for text in rendezvous.store.allgather("machine", json.dumps(_machine()).encode())
    )
    listener = _Listener(rendezvous, machines)
    try:
        own = json.dumps(listener.addresses).encode()
        addresses = [json.loads(text) for text in rendezvous.store.allgather("address", own)]
        deadline = time.monotonic() + timeout_s
        listener.start()
        connections: dict[tuple[int, wire.Purpose], socket.socket] = {}
        for peer in range(rendezvous.rank):
            near = machines[peer] == machines[rendezvous.rank]
            for purpose in (wire.Purpose.OBJECTS, wire.Purpose.TENSORS):
                connections[peer, purpose] = _call(rendezvous, peer, addresses[peer], near, purpose, deadline)
        connections.update(listener.wait(deadline, timeout_s))
    finally:
        listener.close()
    for connection in connections.values():
        _prepare(connection)
    return Mesh(
        {peer: connection for (peer, purpose), connection in connections.items() if purpose is wire.Purpose.OBJECTS},
        {peer: connection for (peer, purpose), connection in connections.items() if purpose is wire.Purpose.TENSORS},
        machines,
    )


def _machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    name = boot.read_text().strip() if boot.exists() else ""
    # Containers on one host share the boot id but not the file system, so the temporary directory is included.
    place = Path(tempfile.gettempdir()).stat()
    return f"{socket.gethostname()} {name} {place.st_dev}:{place.st_ino}"


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(None)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _call(
    rendezvous: Rendezvous,
    peer: int,
    addresses: dict[str, list[object] | str],
    near: bool,
    purpose: wire.Purpose,
    deadline: float,
) -> socket.socket:
    if near and "unix" in addresses:
        connection = connect_until(socket.AF_UNIX, addresses["unix"], deadline)
    else:
        connection = connect_until(socket.AF_INET, tuple(addresses["tcp"]), deadline)
        try:
            connection = secured(connection, rendezvous.secret, server=False, timeout_s=_HANDSHAKE_S)
        except OSError as error:
            raise SMPError(
                f"rank {rendezvous.rank} cannot connect to rank {peer}: {error}; {ENCRYPTION_VARIABLE} and SMP_SECRET "
                "must be the same on all ranks"
            ) from error
    connection.settimeout(_HANDSHAKE_S)
    try:
        hello = wire.introduce(connection, secret=rendezvous.secret, rank=rendezvous.rank, purpose=purpose)
    except wire.HandshakeError as error:
        raise SMPError(f"rank {rendezvous.rank} cannot connect to rank {peer}: {error}") from error
    if hello.rank != peer:
        raise SMPError(f"rank {hello.rank} answers where rank {peer} should: do two jobs share one rendezvous?")
    return connection


class _Listener:
    """Accepts connections from higher ranks, in a thread."""

    def __init__(self, rendezvous: Rendezvous, machines: tuple[str, ...]) -> None:
        self._rendezvous = rendezvous
        self._expected = {
            (peer, purpose)
            for peer in range(rendezvous.rank + 1, rendezvous.size)
            for purpose in (wire.Purpose.OBJECTS, wire.Purpose.TENSORS)
        }
        self._arrived: dict[tuple[int, wire.Purpose], socket.socket] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._listeners: list[socket.socket] = []
        self._directory: Path | None = None
        self.addresses: dict[str, object] = {}
        own = machines[rendezvous.rank]
        by_tcp = os.environ.get(SOCKETS_VARIABLE) == "tcp"
        if not by_tcp and machines.count(own) > 1:
            self._listen_unix()
        if by_tcp or len(set(machines)) > 1:
            # Loopback does not reach other machines; on a single machine nothing else should be reachable.
            self._listen_tcp(rendezvous.host if len(set(machines)) > 1 else "127.0.0.1")

    def start(self) -> None:
        """Start accepting connections."""
        for listener in self._listeners:
            threading.Thread(target=self._serve, args=(listener,), name="smp-listener", daemon=True).start()

    def wait(self, deadline: float, timeout_s: float) -> dict[tuple[int, wire.Purpose], socket.socket]:
        """Wait for all connections and return them."""
        with self._changed:
            while self._arrived.keys() != self._expected:
                if not self._changed.wait(max(0.0, deadline - time.monotonic())) and time.monotonic() > deadline:
                    absent = sorted({peer for peer, _ in self._expected - self._arrived.keys()})
                    raise SMPDeadlockError(f"ranks {absent} did not connect within {timeout_s:g} s")
            return dict(self._arrived)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
            listener.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _listen_unix(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="smp-"))  # mode 0700
        path = self._directory / "s"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(2 * self._rendezvous.size)
        self._listeners.append(listener)
        self.addresses["unix"] = str(path)

    def _listen_tcp(self, host: str) -> None:
        listener = socket.create_server((host, 0), backlog=2 * self._rendezvous.size)
        self._listeners.append(listener)
        self.addresses["tcp"] = list(listener.getsockname()[:2])

    def _serve(self, listener: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._accept, args=(connection,), daemon=True).start()

    def _accept(self, connection: socket.socket) -> None:
        connection.settimeout(_HANDSHAKE_S)
        try:
            if connection.family != socket.AF_UNIX:
                connection = secured(connection, self._rendezvous.secret, server=True, timeout_s=_HANDSHAKE_S)
            hello = wire.accept(connection, secret=self._rendezvous.secret, rank=self._rendezvous.rank)
        except (wire.HandshakeError, OSError, ValueError):
            connection.close()  # a stranger, or a rank that died
            return
        with self._changed:
            key = (hello.rank, hello.purpose)
            if key not in self._expected or key in self._arrived or self._closed:
                connection.close()
                return
            self._arrived[key] = connection
            self._changed.notify_all()
