"""``python -m tidemill_runtime.mpi.reach DIRECTORY [OPTION ...] HOST COMMAND ...``: what mpirun calls in place of ssh.

The supervisor of that instance runs the command there, with the streams of this process. Its socket lies in the
directory that the instances of the job share, which nobody else can enter: so there is no port and no password.
"""

from __future__ import annotations

import os
import sys
import time

from tidemill_runtime import channel
from tidemill_runtime.mpi.entry import connect
from tidemill_runtime.process import die_with_parent

__all__ = ["main", "socket_name"]

_PATIENCE_S = 1200.0
"""How long instances may take to begin, as on SageMaker: some may have to install their requirements."""
_LOOK_S = 0.1


def main(directory: str, arguments: list[str]) -> int:
    """Run the command on the other instance.

    Returns:
        Its exit status.
    """
    die_with_parent(os.getppid())()
    while arguments[0].startswith("-"):  # options of ssh
        arguments = arguments[1:]
    host, command = arguments[0], " ".join(arguments[1:])
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection = connect(directory, socket_name(host))
            break
        except OSError as error:
            if time.monotonic() > until:
                sys.stderr.write(f"tidemill: {host} did not begin within {_PATIENCE_S:.0f} s: {error}\n")
                return 1
        time.sleep(_LOOK_S)
    channel.send(connection, {"command": command}, descriptors=(0, 1, 2))
    message = channel.receive(connection)
    return int(message.content["status"]) if message else 1


def socket_name(host: str) -> str:
    """File name of the socket of an instance's supervisor."""
    return f"{host}.sock"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
