"""Connects instances on several machines by TCP: each instance has a `door`, a process that listens for the others.

The door passes messages from other instances of the job to the supervisor, so the supervisor keeps one thread and never
waits for the network. A secret of the job grants access (see `handshake`); it is in a file of each instance and on no
command line.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime._shared.encryption.certificate import find_obstacle
from tidemill_runtime.errors import ConfigurationError
from tidemill_runtime.mpi.handshake import NUM_PORTS, SupervisorConnection, ask, port_of
from tidemill_runtime.mpi.peers import Peers
from tidemill_runtime.mpi.shared_directory import DirectoryPeers
from tidemill_runtime.mpi.sockets import listen
from tidemill_runtime.process import begin_afresh
from tidemill_runtime.tee import write_all

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidemill_runtime.mpi.plan import MpiPlan, Outcome

DOOR_SOCKET = "door.sock"
"""Socket at which the door reaches the supervisor of its instance."""
DOOR_OPEN = "open"
"""First line that a door writes when it listens; otherwise it writes the reason."""
_CONNECT_S = 3.0


@dataclass(frozen=True)
class Addresses:
    """The content of the file that the platform writes for an instance.

    Attributes:
        addresses: IP address of each instance by its name.
        secret: Secret of this attempt of the job, known to its instances only.
        encrypted: Whether the instances encrypt what they send to each other.
    """

    addresses: Mapping[str, str]
    secret: bytes
    encrypted: bool = False

    def secret_for(self, use: str) -> bytes:
        """Derive a secret for another use, which does not reveal this one.

        Args:
            use: Name of the other use.

        Returns:
            32 bytes.
        """
        return hmac.new(self.secret, f"secret for {use}".encode(), hashlib.sha256).digest()

    def secured(self, raw: socket.socket, *, server: bool) -> socket.socket:
        """Return the socket to use in place of a connection.

        Raises:
            OSError: The other side does not encrypt, or does not know the secret.
        """
        if not self.encrypted:
            return raw
        from tidemill_runtime._shared.encryption.tls import tls_context  # takes TLS along, which most jobs do not need

        return tls_context(self.secret_for("tls"), server=server).wrap_socket(raw, server_side=server)

    @classmethod
    def read(cls, path: Path) -> Addresses:
        """Read the file.

        Raises:
            ConfigurationError: The file is not valid, or a package for encryption is missing.
        """
        try:
            value = json.loads(path.read_text(encoding="ascii"))
            found = cls(
                addresses=dict(value["addresses"]),
                secret=bytes.fromhex(value["secret"]),
                encrypted=bool(value.get("encrypted", False)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} does not tell where the job's instances are: {error!r}") from error
        obstacle = find_obstacle() if found.encrypted else ""
        if obstacle:
            raise ConfigurationError(f"the job requests encryption between its instances: {obstacle}")
        return found


class NetworkPeers(Peers):
    """`Peers` over TCP.

    Args:
        directory: Directory of this instance, for sockets and notices.
        file: The file with addresses and secret; see `Addresses`.
        host: Name of this instance.
        others: Names of the other instances.
    """

    def __init__(self, directory: Path, *, file: Path, host: str, others: Sequence[str]) -> None:
        super().__init__(directory, host=host, others=others)
        self._file = file
        self._door: subprocess.Popen[bytes] | None = None

    def listen(self) -> socket.socket:
        listener = listen(self._directory / DOOR_SOCKET)
        command = (sys.executable, "-I", "-m", "tidemill_runtime.mpi.door", str(self._directory), str(self._file))
        self._door = subprocess.Popen(
            [*command, self._host, *self._others],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=begin_afresh(os.getpid()),  # safe: the supervisor has one thread
        )
        assert self._door.stdout is not None
        first_line = self._door.stdout.readline().decode("utf-8", "replace").strip()
        if first_line != DOOR_OPEN:
            raise ConfigurationError(first_line or "the process that listens for the other instances of the job ended")
        return listener

    def _announce(self, notice: str, outcome: Outcome) -> None:
        """Hand the notice to the door, which delivers it to the other instances."""
        if self._door is not None and self._door.stdin is not None:
            line = json.dumps({"notice": notice, "outcome": asdict(outcome)}) + "\n"
            with contextlib.suppress(OSError):  # without a door, only the platform informs the other instances
                self._door.stdin.write(line.encode("ascii"))
                self._door.stdin.flush()

    def _connect(self, host: str) -> SupervisorConnection:
        connection = call(Addresses.read(self._file), host)
        if connection is None:
            raise ConnectionRefusedError("nothing of this job listens there")
        return connection

    def _run_by(self, connection: SupervisorConnection, host: str, command: str) -> int:
        (self._directory / _mark(host)).touch()
        connection.send({"command": command})
        try:
            return _output_of(connection)
        except (OSError, ValueError) as error:
            sys.stderr.write(f"tidemill: the connection to {host} broke: {error}\n")
            return 1

    def close(self) -> None:
        if self._door is None:
            return
        for stream in filter(None, (self._door.stdin, self._door.stdout)):
            with contextlib.suppress(OSError):  # the door has ended before it read everything
                stream.close()
        self._door.wait()


def peers_of(plan: MpiPlan) -> Peers | None:
    """Return the peers of an instance; None if it is the only instance."""
    if plan.network:
        return NetworkPeers(Path(plan.shared), file=Path(plan.network), host=plan.host, others=plan.others)
    return DirectoryPeers(Path(plan.shared), host=plan.host, others=plan.others) if plan.shared else None


def call(addresses: Addresses, host: str) -> SupervisorConnection | None:
    """Connect to the door of an instance; return None if it does not listen.

    Args:
        addresses: Addresses and secret of the job.

    Returns:
        An encrypted connection, if the job encrypts.
    """
    for number in range(NUM_PORTS):
        where = addresses.addresses[host], port_of(addresses.secret, host, number)
        try:
            raw = socket.create_connection(where, timeout=_CONNECT_S)
        except ConnectionRefusedError:
            continue
        except OSError:
            return None  # the machine does not answer
        try:
            raw = addresses.secured(raw, server=False)
            connection = ask(raw, secret=addresses.secret, host=host)
            raw.settimeout(None)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection
        except (OSError, ValueError):  # another program uses that port
            raw.close()
    return None


def was_reached(directory: Path, host: str) -> bool:
    """Return whether mpirun, on this instance, has started a daemon on another one.

    Args:
        directory: Directory of this instance's notices.
        host: Name of the other instance.
    """
    return (directory / _mark(host)).exists()


def _mark(host: str) -> str:
    return f"reached.{host}"


def _output_of(connection: SupervisorConnection) -> int:
    """Pass on the output of a command, and return its exit status."""
    while True:
        message = connection.receive()
        if message is None:
            return 1
        if "status" in message:
            return int(message["status"])
        write_all(int(message["stream"]), message["text"].encode("latin-1"))
