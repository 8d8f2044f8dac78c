"""``python -m tidemill_runtime.mpi.entry DIRECTORY``: the program that MPI's process manager starts in place of a rank.

It passes MPI's variables and descriptor to the supervisor of its instance, which starts the rank as its own child. Then
it waits for the rank's end and passes the exit status to MPI. The supervisor thus sees how every rank ended, regardless
of MPI's reaction.
"""

from __future__ import annotations

import os
import sys

from tidemill_runtime import channel
from tidemill_runtime.mpi.sockets import connect
from tidemill_runtime.process import die_with_parent

SOCKET = "ranks.sock"
DIRECTORY = "TIDEMILL_MPI_DIRECTORY"
"""Variable that names the directory of this instance, if mpirun runs on another one."""
DESCRIPTORS = ("PMI_FD",)
"""Variables with the number of a descriptor through which the rank communicates with MPI."""


def main(directory: str) -> int:
    """Take the place of the rank for MPI.

    Returns:
        The rank's exit status, as a shell shows it.
    """
    die_with_parent(os.getppid())()
    connection = connect(os.environ.get(DIRECTORY, directory), SOCKET)
    names = [name for name in DESCRIPTORS if name in os.environ]
    fds = tuple(int(os.environ[name]) for name in names)
    content = {
        "variables": dict(os.environ),
        "descriptors": names,
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    channel.send(connection, content, descriptors=fds)
    for fd in fds:
        os.close(fd)  # MPI must see the descriptor closed when the rank ends
    message = channel.receive(connection)
    return int(message.content["status"]) if message else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
