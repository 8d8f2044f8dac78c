"""Chooses the fastest transport that every rank has."""

import logging
import os
import socket
from collections.abc import Callable

from smdistributed.modelparallel.backend.exceptions import SMPConfigurationError
from smdistributed.modelparallel.tensorflow.transport.base import Transport
from smdistributed.modelparallel.tensorflow.transport.library import load_native_library
from smdistributed.modelparallel.tensorflow.transport.native import NativeTransport
from smdistributed.modelparallel.tensorflow.transport.python import PythonTransport
from smdistributed.modelparallel.tensorflow.world.group import Group

TRANSPORT_VARIABLE = "SMP_TRANSPORT"
"""Environment variable that overrides the parameter `transport` if that is `auto`."""
_log = logging.getLogger("smdistributed.modelparallel")


def choose_transport(
    wanted: str,
    group: Group,
    connections: dict[int, socket.socket],
    *,
    hang_timeout_s: float,
    name_of: Callable[[int], str],
) -> Transport:
    """Create the best transport that all ranks of `group` have. Collective.

    Raises:
        SMPConfigurationError: If `native` was requested and a rank does not have it.
    """
    if wanted == "auto":
        wanted = os.environ.get(TRANSPORT_VARIABLE, "auto")
    problems = _native_problems(wanted, group)
    if wanted == "native" and problems:
        raise SMPConfigurationError(
            f"'transport' is 'native', but {problems[0]}: fix that, or set 'transport' to 'auto' or 'python'"
        )
    if wanted == "python" or problems or not connections:
        why = problems[0] if problems else "as asked for" if connections else "no other rank"
        transport: Transport = PythonTransport(connections, hang_timeout_s=hang_timeout_s, name_of=name_of)
    else:
        library = load_native_library()
        why = library.source
        transport = NativeTransport(library, connections, hang_timeout_s=hang_timeout_s, name_of=name_of)
    if group.rank == 0:
        receives = "occupying" if transport.receives_occupy_threads else "asynchronous"
        _log.info("smp.transport name=%s why=%s ranks=%d receives=%s", transport.name, why, group.size, receives)
    return transport


def _native_problems(wanted: str, group: Group) -> list[str]:
    """Return why ranks cannot use the native transport, one text per rank; also checks that all ranks want the same."""
    asked = group.allgather_objects(wanted, what="choice of transport")
    if any(one != wanted for one in asked):
        raise SMPConfigurationError(f"'transport' must be the same on all ranks; received {asked}")
    if wanted == "python" or group.size == 1:
        return []
    problem = ""
    # One rank per machine loads the library first: if it has to compile it, the others then find the result.
    first = group.world.local_rank == 0
    if first:
        problem = _try_native()
    group.barrier()
    if not first:
        problem = _try_native()
    found = group.allgather_objects(problem, what="choice of transport")
    return [f"rank {rank} cannot load it ({text})" for rank, text in enumerate(found) if text]


def _try_native() -> str:
    library = load_native_library()
    return "" if library.ops is not None else library.source
