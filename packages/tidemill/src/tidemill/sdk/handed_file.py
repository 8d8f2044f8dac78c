"""Hand a file to the service as an open descriptor, if the service runs on this machine as this user.

The service announces the path of its socket. The client connects only to a socket of that name that this user owns, and
checks that a process of this user listens there.
"""

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Generator
from pathlib import Path

from tidemill.core.handed_files import GREETING, MESSAGE_MAX_BYTES, SOCKET_NAME

_TIMEOUT_S = 30.0
"""The service sends a message every half second."""
_CREDENTIALS = struct.Struct("3i")


@contextlib.contextmanager
def handed_over(file: Path, socket_path: str, *, copied: Callable[[int], None]) -> Generator[str | None]:
    """Hand a file over. Yield the ticket for its copy, valid until the block ends; None if the service takes none.

    Args:
        file: The file.
        socket_path: Path of the service's socket.
        copied: Called with the number of bytes that the service has copied so far.
    """
    with contextlib.ExitStack() as stack:
        ticket = None
        with contextlib.suppress(OSError):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            if _connect(connection, socket_path):
                _send(connection, file)
                ticket = _ticket(connection, copied)
        yield ticket


def _connect(connection: socket.socket, path: str) -> bool:
    """Connect to a socket; return whether it is the one of a service of this user."""
    found = os.lstat(path)
    if Path(path).name != SOCKET_NAME or not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        return False
    connection.settimeout(_TIMEOUT_S)
    connection.connect(path)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())


def _send(connection: socket.socket, file: Path) -> None:
    with file.open("rb", buffering=0) as content:
        socket.send_fds(connection, [GREETING], [content.fileno()])


def _ticket(connection: socket.socket, copied: Callable[[int], None]) -> str | None:
    """Return the ticket, or None if the service refuses the file or has ended."""
    while True:
        word, _, value = connection.recv(MESSAGE_MAX_BYTES).decode(errors="replace").partition(" ")
        if word == "copied":
            copied(int(value))
        else:
            return value if word == "ticket" else None
