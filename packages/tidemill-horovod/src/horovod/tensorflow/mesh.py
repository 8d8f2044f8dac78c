"""Connect ranks: shared memory on one machine, sockets between machines.

Rank 0 has a control socket to each other rank. Ranks of one machine share memory whose descriptor is sent over those
sockets, so no file remains, however the job ends. Ranks of several machines have a data socket for each pair.
"""

from __future__ import annotations

import ctypes
import os
import socket
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.tensorflow._shared.ranks.errors import RanksError
from horovod.tensorflow._shared.ranks.meeting import Rendezvous, meet

TRANSPORT_VARIABLE = "HOROVOD_TIDEMILL_TRANSPORT"
"""`tcp` makes ranks of one machine use sockets as if they were on several machines. Default: `auto`."""
_CONTROL, _DATA = "control", "data"
_CLOSE_ON_EXEC = 1  # MFD_CLOEXEC


@dataclass(frozen=True)
class Mesh:
    """Descriptors for the native library, which owns them."""

    names: tuple[str, ...]
    """By rank: `rank 1 (host, process 17)`."""
    hosts: tuple[str, ...]
    """By rank, the name of its machine."""
    control: list[int]
    """By rank; -1 if there is no socket."""
    data: list[int]
    memory: int
    """Descriptor of the shared memory; -1 if ranks use the data sockets."""


def connect(rendezvous: Rendezvous, *, memory_bytes: int, problem: str, timeout_s: float) -> Mesh:
    """Connect this rank to the others. Collective.

    Args:
        rendezvous: How the ranks find each other.
        memory_bytes: Size of the memory that ranks of one machine share.
        problem: Why this rank cannot take part; empty if it can.
        timeout_s: Time limit for the connections of all ranks, in seconds.

    Raises:
        RanksError: If a rank cannot take part, or does not connect in time.
    """
    meeting = meet(rendezvous, (problem, os.environ.get(TRANSPORT_VARIABLE, "auto")))
    _require_no_problem([problem for problem, _ in meeting.notes])
    by_tcp = _agreed_transport({transport for _, transport in meeting.notes}) == "tcp"
    shares_memory = len(set(meeting.machines)) == 1 and not by_tcp
    sockets = meeting.connect(
        () if shares_memory else (_DATA,), with_first=(_CONTROL,), by_tcp=by_tcp, timeout_s=timeout_s
    )
    try:
        memory = _share_memory(sockets, memory_bytes, timeout_s) if shares_memory else -1
    except (OSError, EOFError) as error:
        raise RanksError(f"a rank has ended, or hangs, before all of them shared memory: {error}") from error
    control, data = (_detached(sockets, channel, rendezvous.size) for channel in (_CONTROL, _DATA))
    return Mesh(meeting.names, meeting.machines, control, data, memory)


def _require_no_problem(problems: Sequence[str]) -> None:
    lacking = [f"rank {rank} ({problem})" for rank, problem in enumerate(problems) if problem]
    if lacking:
        raise RanksError(f"the native library cannot be loaded on {', '.join(lacking)}")


def _agreed_transport(transports: set[str]) -> str:
    if transports not in ({"auto"}, {"tcp"}):
        raise RanksError(
            f"{TRANSPORT_VARIABLE} is {sorted(transports)} on the ranks; allowed is one of 'auto' and 'tcp'"
        )
    return transports.pop()


def _share_memory(sockets: Mapping[tuple[int, str], socket.socket], memory_bytes: int, timeout_s: float) -> int:
    """Send the descriptor of new memory to the other ranks, or receive it from rank 0."""
    if (0, _CONTROL) not in sockets:
        memory = _memory_file()
        os.ftruncate(memory, memory_bytes)
        descriptor = array("i", [memory])
        for connection in sockets.values():  # socket.send_fds needs Python 3.9
            connection.sendmsg([b"m"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptor)])
        return memory
    connection = sockets[0, _CONTROL]
    connection.settimeout(timeout_s)
    received = array("i", [-1])
    _, ancillary, *_ = connection.recvmsg(1, socket.CMSG_SPACE(received.itemsize))
    connection.settimeout(None)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received = array("i", data[: received.itemsize])
    if received[0] < 0:
        raise EOFError("rank 0 has closed the connection")
    os.set_inheritable(received[0], False)
    return received[0]


def _memory_file() -> int:
    """Return the descriptor of a new file in memory without a name, as `os.memfd_create` does since Python 3.8."""
    libc = ctypes.CDLL(None, use_errno=True)
    memory: int = libc.memfd_create(b"horovod", _CLOSE_ON_EXEC)
    if memory < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return memory


def _detached(sockets: Mapping[tuple[int, str], socket.socket], channel: str, size: int) -> list[int]:
    found = {peer: connection for (peer, one), connection in sockets.items() if one == channel}
    return [found[rank].detach() if rank in found else -1 for rank in range(size)]
