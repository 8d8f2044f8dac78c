"""Connect ranks: shared memory on one machine, sockets between machines.

Rank 0 has a control socket to each other rank. Ranks of one machine share memory whose descriptor is sent over those
sockets, so no file remains, however the job ends. Ranks of several machines have a data socket for each pair.
Every connection begins with a secret of the job, which the ranks exchanged through their launcher.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovod.tensorflow._shared.encryption.tunnel import enclose
from horovod.tensorflow.rendezvous import Rendezvous, find_encryption_secret

__all__ = ["TRANSPORT_VARIABLE", "Mesh", "connect"]

TRANSPORT_VARIABLE = "HOROVOD_TIDEMILL_TRANSPORT"
"""`tcp` makes ranks of one machine use sockets as if they were on several machines. Default: `auto`."""
_HELLO = struct.Struct("<32sIc")
_CONTROL, _DATA = b"c", b"d"
_HANDSHAKE_S = 10.0


@dataclass(frozen=True)
class Mesh:
    """Descriptors for the native library, which owns them."""

    names: list[str]
    """By rank: `rank 1 (host, process 17)`."""
    hosts: list[str]
    """By rank, the name of its machine."""
    control: list[int]
    """By rank; -1 if there is no socket."""
    data: list[int]
    memory: int
    """Descriptor of the shared memory; -1 if ranks use the data sockets."""


def connect(rendezvous: Rendezvous, *, memory_bytes: int, problem: str, address: str, timeout_s: float) -> Mesh:
    """Connect this rank to the others. Collective.

    Args:
        rendezvous: The exchange by which the ranks find each other.
        memory_bytes: Size of the memory that ranks of one machine share.
        problem: Why this rank cannot take part; empty if it can.
        address: Address of this machine for other machines; empty to look it up.
        timeout_s: Time limit for the connections of all ranks.

    Raises:
        RuntimeError: If a rank cannot take part, or does not connect in time.
    """
    deadline_s = time.monotonic() + timeout_s
    abstract = _listen_here()
    by_network = _listen_on_network(rendezvous.size)
    with abstract, by_network:
        mine = {
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": os.getpid(),
            "abstract": abstract.getsockname().decode(),
            "address": [address or _own_address(), by_network.getsockname()[1]],
            "secret": secrets.token_hex(32),
            "problem": problem,
            "transport": os.environ.get(TRANSPORT_VARIABLE, "auto"),
        }
        infos = [json.loads(message) for message in rendezvous.allgather(json.dumps(mine).encode())]
        _require_all(infos)
        names = [f"rank {rank} ({one['host']}, process {one['process']})" for rank, one in enumerate(infos)]
        hosts = [one["machine"] for one in infos]
        secret = bytes.fromhex(infos[0]["secret"])
        is_local = len(set(hosts)) == 1 and infos[0]["transport"] != "tcp"
        join = _Joining(rendezvous.rank, rendezvous.size, secret, names, deadline_s, encrypted=find_encryption_secret())
        if is_local:
            control, memory = join.over_memory(abstract, infos[0]["abstract"], memory_bytes)
            return Mesh(names, hosts, control, [-1] * rendezvous.size, memory)
        on_one_machine = len(set(hosts)) == 1
        addresses = [("127.0.0.1" if on_one_machine else one["address"][0], one["address"][1]) for one in infos]
        control, data = join.over_network(by_network, addresses)
        return Mesh(names, hosts, control, data, -1)


class _Joining:
    """The sockets between this rank and the others, connected one after the other."""

    def __init__(
        self, rank: int, size: int, secret: bytes, names: list[str], deadline_s: float, *, encrypted: bytes | None
    ) -> None:
        self._encrypted = encrypted
        self._rank = rank
        self._size = size
        self._secret = secret
        self._names = names
        self._deadline_s = deadline_s

    def over_memory(self, listener: socket.socket, name: str, memory_bytes: int) -> tuple[list[int], int]:
        if self._rank > 0:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(self._left_s())
            connection.connect(name.encode())
            connection.sendall(_HELLO.pack(self._secret, self._rank, _CONTROL))
            _, (memory, *_), *_ = socket.recv_fds(connection, 1, 1)
            return [_detached(connection) if rank == 0 else -1 for rank in range(self._size)], memory
        memory = os.memfd_create("horovod")
        os.ftruncate(memory, memory_bytes)
        accepted = self._accept(listener, {(rank, _CONTROL) for rank in range(1, self._size)})
        for connection in accepted.values():
            socket.send_fds(connection, [b"m"], [memory])
        return [-1, *(_detached(accepted[rank, _CONTROL]) for rank in range(1, self._size))], memory

    def over_network(self, listener: socket.socket, addresses: list[tuple[str, int]]) -> tuple[list[int], list[int]]:
        made: dict[tuple[int, bytes], socket.socket] = {}
        for rank in range(self._rank):  # each rank connects to the lower ranks
            for kind in (_CONTROL, _DATA) if rank == 0 else (_DATA,):
                try:
                    made[rank, kind] = socket.create_connection(addresses[rank], timeout=self._left_s())
                except OSError as error:
                    raise RuntimeError(
                        f"hvd.init(): {self._names[self._rank]} cannot connect to {self._names[rank]} at "
                        f"{addresses[rank]}: {error}"
                    ) from error
                made[rank, kind] = self._secured(made[rank, kind], rank)
                made[rank, kind].sendall(_HELLO.pack(self._secret, self._rank, kind))
        kinds = (_CONTROL, _DATA) if self._rank == 0 else (_DATA,)
        made |= self._accept(listener, {(rank, kind) for rank in range(self._rank + 1, self._size) for kind in kinds})
        for connection in made.values():
            if connection.family != socket.AF_UNIX:  # which it is if it leads to a tunnel
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._by_rank(made, _CONTROL), self._by_rank(made, _DATA)

    def _secured(self, connection: socket.socket, rank: int) -> socket.socket:
        """Put TLS around a connection to a rank, if it is asked for."""
        if self._encrypted is None:
            return connection
        try:
            return enclose(connection, self._encrypted, server=False, timeout_s=_HANDSHAKE_S)
        except OSError as error:
            raise RuntimeError(
                f"hvd.init(): {self._names[self._rank]} cannot encrypt its connection to {self._names[rank]}: {error}; "
                "SMP_ENCRYPTION and SMP_SECRET must be the same on all ranks"
            ) from error

    def _by_rank(self, made: Mapping[tuple[int, bytes], socket.socket], kind: bytes) -> list[int]:
        return [_detached(made[rank, kind]) if (rank, kind) in made else -1 for rank in range(self._size)]

    def _accept(
        self, listener: socket.socket, wanted: set[tuple[int, bytes]]
    ) -> dict[tuple[int, bytes], socket.socket]:
        accepted: dict[tuple[int, bytes], socket.socket] = {}
        while len(accepted) < len(wanted):
            listener.settimeout(self._left_s(wanted - accepted.keys()))
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                connection.settimeout(_HANDSHAKE_S)
                with suppress(OSError):
                    if self._encrypted and connection.family != socket.AF_UNIX:
                        connection = enclose(connection, self._encrypted, server=True, timeout_s=_HANDSHAKE_S)
                        connection.settimeout(_HANDSHAKE_S)
                    hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
                    secret, rank, kind = _HELLO.unpack(hello.ljust(_HELLO.size, b"\0"))
                    if hmac.compare_digest(secret, self._secret) and (rank, kind) in wanted - accepted.keys():
                        accepted[rank, kind] = connection
                        continue
                connection.close()  # not a rank of this job
        return accepted

    def _left_s(self, missing: Any = ()) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            names = ", ".join(self._names[rank] for rank in sorted({rank for rank, _ in missing}))
            raise RuntimeError(f"hvd.init(): {self._names[self._rank]} has waited in vain for {names or 'rank 0'}")
        return left_s


def _listen_here() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0tidemill-horovod-{secrets.token_hex(16)}".encode())
    listener.listen(1024)
    return listener


def _listen_on_network(size: int) -> socket.socket:
    return socket.create_server(("", 0), backlog=max(128, 2 * size))


def _machine() -> str:
    """Return a key that is equal for processes that can share memory: machine, network namespace, and user."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot} {Path('/proc/self/ns/net').readlink()} {os.getuid()}"


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def _require_all(infos: list[dict[str, Any]]) -> None:
    lacking = [f"rank {rank} ({one['problem']})" for rank, one in enumerate(infos) if one["problem"]]
    if lacking:
        raise RuntimeError(f"hvd.init(): the native library cannot be loaded on {', '.join(lacking)}")
    transports = sorted({one["transport"] for one in infos})
    if len(transports) > 1 or transports[0] not in ("auto", "tcp"):
        raise RuntimeError(
            f"hvd.init(): {TRANSPORT_VARIABLE} is {transports} on the ranks; allowed is one of 'auto' and 'tcp'"
        )


def _detached(connection: socket.socket) -> int:
    connection.settimeout(None)
    return connection.detach()
