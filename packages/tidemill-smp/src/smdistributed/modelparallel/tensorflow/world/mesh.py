"""Connect this rank to all others: for each pair a connection for Python objects and one for tensors."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from smdistributed.modelparallel.tensorflow._shared.ranks.meeting import Rendezvous, meet
from smdistributed.modelparallel.tensorflow.world.rendezvous import rank_errors

SOCKETS_VARIABLE = "SMP_SOCKETS"
"""`unix` (default: unix sockets between ranks of one machine) or `tcp` (TCP on one machine too)."""
_OBJECTS, _TENSORS = "objects", "tensors"
_BUFFER_BYTES = 4 << 20


@dataclass(frozen=True)
class RankConnections:
    """The connections of one rank."""

    objects: dict[int, socket.socket]
    """By peer, for Python objects."""
    tensors: dict[int, socket.socket]
    """By peer, for tensors."""
    machines: tuple[str, ...]
    """The machine of each rank, by rank."""


@rank_errors()
def connect_all(rendezvous: Rendezvous, *, timeout_s: float) -> RankConnections:
    """Connect this rank to all others. Collective.

    Raises:
        SMPDeadlockError: If another rank does not connect in time.
    """
    meeting = meet(rendezvous)
    by_tcp = os.environ.get(SOCKETS_VARIABLE) == "tcp"
    connections = meeting.connect([_OBJECTS, _TENSORS], by_tcp=by_tcp, timeout_s=timeout_s)
    for connection in connections.values():
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
    objects, tensors = (
        {peer: connection for (peer, channel), connection in connections.items() if channel == wanted}
        for wanted in (_OBJECTS, _TENSORS)
    )
    return RankConnections(objects, tensors, meeting.machines)
