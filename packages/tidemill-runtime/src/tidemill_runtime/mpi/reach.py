"""``python -m tidemill_runtime.mpi.reach PLAN [OPTION ...] HOST COMMAND ...``: mpirun calls this in place of ssh.

The supervisor of instance HOST runs the command there; its output goes to the output of this process (see `peers`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tidemill_runtime.mpi.network import peers_of
from tidemill_runtime.mpi.plan import MpiPlan
from tidemill_runtime.process import die_with_parent


def main(plan: str, arguments: list[str]) -> int:
    """Run the command on the other instance.

    Returns:
        The exit status of the command.
    """
    die_with_parent(os.getppid())()
    while arguments[0].startswith("-"):  # options of ssh
        arguments = arguments[1:]
    peers = peers_of(MpiPlan.read(Path(plan)))
    if peers is None:
        sys.stderr.write(f"tidemill: {arguments[0]} is no instance of this job\n")
        return 1
    return peers.run(arguments[0], " ".join(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
