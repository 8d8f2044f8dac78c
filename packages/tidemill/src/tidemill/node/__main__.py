"""``python -I -m tidemill.node DIRECTORY [GPUS]``: run the instance whose assignment is in that directory.

GPUS is the value of CUDA_VISIBLE_DEVICES for the script. Default: the script may use all GPUs of the machine.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

from tidemill._shared.trees import remove_tree
from tidemill.core.files import write_json
from tidemill.core.process import ProcessId
from tidemill.executors.cluster.machine import ASSIGNMENT_FILE, LOCK_FILE, PROCESS_FILE, remove_remains
from tidemill.instance.assignment import AgentAssignment
from tidemill.node.agent import Agent
from tidemill.settings import Settings


def main(arguments: list[str]) -> int:
    """Run one instance. Return at once if another agent runs the instance, or if the instance has ended."""
    directory = Path(arguments[0])
    try:
        lock_fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assignment = AgentAssignment.from_bytes((directory / ASSIGNMENT_FILE).read_bytes())
    except (FileNotFoundError, BlockingIOError):
        return 0
    for gpus in arguments[1:]:
        variables = {**assignment.spec.variables, "CUDA_VISIBLE_DEVICES": gpus}
        assignment = replace(assignment, spec=replace(assignment.spec, variables=variables))
    own = ProcessId.own()
    identity = {"id": [own.boot_id, own.pid, own.start_ticks], "host": socket.gethostname()}
    write_json(directory / PROCESS_FILE, identity)
    asyncio.run(Agent(assignment, directory, environments_dir=Settings().environments_dir).run())
    with contextlib.suppress(OSError):  # the next agent tries again
        remove_tree(directory)
    remove_remains(directory.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
