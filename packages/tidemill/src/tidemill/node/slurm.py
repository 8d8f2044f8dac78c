"""``python -I -m tidemill.node.slurm FILE``: run the instance of this node of an allocation.

FILE, which the service sends by sbcast once the allocation has begun, contains the assignments of all instances. The
number of the node in the allocation is the index of its instance.
"""

import contextlib
import os
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tidemill.executors.cluster.machine import Machine
from tidemill.executors.slurm.batch import unpack
from tidemill.instance.assignment import AgentAssignment
from tidemill.node import __main__ as agent
from tidemill.settings import Settings

_LOOK_S = 0.2
_WAIT_S = 900.0
"""Longest wait for the assignments. The service may be away when the allocation begins."""


class NotOurs(Exception):
    """The file belongs to another user, or others can read or replace it."""


def main(arguments: list[str]) -> int:
    """Wait for the assignment and run the agent. Return 0 without an instance if no assignment comes."""
    index = int(os.environ["SLURM_NODEID"])
    assignments = await_assignments(Path(arguments[0]), wait_s=_WAIT_S)
    if assignments is None or index not in assignments:
        return 0  # the service submits the job again if it still needs it
    assignment = assignments[index]
    ref = AgentAssignment.from_bytes(assignment).spec.ref
    directory = Machine(Settings().node_dir).prepare(ref, assignment)
    gpus = [os.environ["CUDA_VISIBLE_DEVICES"]] if os.environ.get("CUDA_VISIBLE_DEVICES") else []
    return agent.main([str(directory), *gpus])


def await_assignments(file: Path, *, wait_s: float) -> Mapping[int, bytes] | None:
    """Return the assignments in a file as soon as it is complete, and remove it. Return None if it does not come.

    Args:
        file: The file, in a directory in which other users may write.
        wait_s: Longest wait in seconds.

    Raises:
        NotOurs: Another user may have written the file.
    """
    end_s = time.monotonic() + wait_s
    while time.monotonic() < end_s:
        with contextlib.suppress(FileNotFoundError):
            assignments = unpack(_read_own(file))
            if assignments is not None:
                file.unlink()
                return assignments
        time.sleep(_LOOK_S)
    return None


def _read_own(file: Path) -> bytes:
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as opened:
        found = os.fstat(opened.fileno())
        if found.st_uid != os.getuid() or not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            raise NotOurs(f"{file} belongs to user {found.st_uid} with mode {found.st_mode & 0o7777:o}; expected 600")
        return opened.read()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
