"""Let the ranks of a job know each other, and connect them: unix sockets on one machine, TCP between machines."""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .connections import PeerListener, call
from .errors import MissingRanksError, RankSettingError

_SECRET_BYTES = 32


def _do_nothing() -> None:
    pass


@dataclass(frozen=True)
class Rendezvous:
    """The information that a rank needs to meet the others."""

    rank: int
    size: int
    allgather: Callable[[bytes], list[bytes]]
    """Returns the values of all ranks, by rank. Collective; called twice."""
    secret: bytes = b""
    """Known to the ranks of this job only. Empty: rank 0 makes one, and `allgather` brings it to the others."""
    host: str = ""
    """The address of this machine for other machines. Empty: that of its host name."""
    close: Callable[[], None] = _do_nothing
    """Called when all ranks are connected."""


@dataclass(frozen=True)
class Meeting:
    """What all ranks know about each other. The tuples are by rank."""

    rendezvous: Rendezvous
    secret: bytes
    machines: tuple[str, ...]
    """Equal for ranks that can use unix sockets."""
    names: tuple[str, ...]
    """E.g. `rank 1 (host, process 17)`."""
    notes: tuple[Any, ...]

    def connect(
        self, between_all: Sequence[str] = (), *, with_first: Sequence[str] = (), by_tcp: bool, timeout_s: float
    ) -> dict[tuple[int, str], socket.socket]:
        """Connect this rank to the others, and close the rendezvous. Collective; called once.

        Args:
            between_all: The channels of every two ranks, each of which gets a connection.
            with_first: The channels between rank 0 and every other rank.
            by_tcp: Whether to use TCP between ranks of one machine too.
            timeout_s: Time limit in seconds.

        Returns:
            The connections by rank and channel. They block.

        Raises:
            MissingRanksError: If another rank does not connect in time.
            RanksError: If another process is where a rank should be.
        """
        rank, size = self.rendezvous.rank, self.rendezvous.size
        accepted = (*between_all, *with_first) if rank == 0 else between_all
        expected = {(peer, channel) for peer in range(rank + 1, size) for channel in accepted}
        made: dict[tuple[int, str], socket.socket] = {}
        with ExitStack() as stack, ExitStack() as failure:
            stack.callback(self.rendezvous.close)
            listener = stack.enter_context(closing(PeerListener(secret=self.secret, rank=rank, expected=expected)))
            own = self._listen(listener, {peer for peer, _ in expected}, by_tcp)
            addresses = [json.loads(text) for text in self.rendezvous.allgather(json.dumps(own).encode())]
            deadline_s = time.monotonic() + timeout_s
            for peer in range(rank):  # each rank connects to the lower ranks
                near = not by_tcp and self.machines[peer] == self.machines[rank]
                for channel in (*between_all, *with_first) if peer == 0 else between_all:
                    address = addresses[peer]["here"] if near else tuple(addresses[peer]["network"])
                    connection = call(
                        address, secret=self.secret, rank=rank, peer=peer, channel=channel, deadline_s=deadline_s
                    )
                    made[peer, channel] = failure.enter_context(connection)
            for key, connection in listener.wait(deadline_s).items():
                made[key] = failure.enter_context(connection)
            absent = sorted({peer for peer, _ in expected - made.keys()})
            if absent:
                names = ", ".join(self.names[peer] for peer in absent)
                raise MissingRanksError(f"{names} did not connect to {self.names[rank]} within {timeout_s:g} s")
            failure.pop_all()
        for connection in made.values():
            connection.settimeout(None)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return made

    def _listen(self, listener: PeerListener, peers: set[int], by_tcp: bool) -> dict[str, Any]:
        """Listen only where a peer will connect, and on a network only if there are several machines."""
        own = self.machines[self.rendezvous.rank]
        near = set() if by_tcp else {peer for peer in peers if self.machines[peer] == own}
        addresses: dict[str, Any] = {}
        if near:
            addresses["here"] = listener.listen(f"ranks-{secrets.token_hex(16)}")
        if peers - near:
            several = len(set(self.machines)) > 1
            host = self.rendezvous.host or _own_host() if several else "127.0.0.1"
            addresses["network"] = listener.listen((host, 0))
        return addresses


def meet(rendezvous: Rendezvous, note: Any = None) -> Meeting:
    """Exchange with all ranks who they are. Collective.

    Args:
        rendezvous: How the ranks find each other.
        note: What else the others have to know of this rank: any value of JSON.

    Raises:
        RanksError: If ranks are missing at the store's time limit.
    """
    mine = {
        "host": socket.gethostname(),
        "machine": _machine(),
        "process": os.getpid(),
        "secret": "" if rendezvous.secret else secrets.token_hex(_SECRET_BYTES),
        "note": note,
    }
    ranks = [json.loads(text) for text in rendezvous.allgather(json.dumps(mine).encode())]
    return Meeting(
        rendezvous,
        rendezvous.secret or bytes.fromhex(ranks[0]["secret"]),
        tuple(one["machine"] for one in ranks),
        tuple(f"rank {rank} ({one['host']}, process {one['process']})" for rank, one in enumerate(ranks)),
        tuple(one["note"] for one in ranks),
    )


def _machine() -> str:
    """Return a text that is equal for processes that can use abstract unix sockets: machine, network and user."""
    boot = network = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        network = os.readlink("/proc/self/ns/net")  # noqa: PTH115 - Path.readlink needs Python 3.9
    return f"{socket.gethostname()} {boot} {network} {os.getuid()}"


def _own_host() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError as error:
        raise RankSettingError(
            f"ranks run on several machines, and the name of this one, {name!r}, has no address ({error}): export "
            "SMP_HOST, the address at which the other machines reach this one"
        ) from error
