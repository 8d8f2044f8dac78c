"""Unix sockets in directories whose path may be longer than a socket address allows."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BACKLOG = 128


def listen(path: Path) -> socket.socket:
    """Listen at a path, and replace an existing socket there.

    Args:
        path: Path of the socket; longer ones than the kernel's limit work, too.

    Returns:
        A listening unix socket.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(str(path.parent), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listener.bind(f"/proc/self/fd/{fd}/{path.name}")
    finally:
        os.close(fd)
    listener.listen(_BACKLOG)
    return listener


def connect(directory: str, name: str) -> socket.socket:
    """Connect to the socket of that name in a directory.

    Args:
        directory: The directory; its path may be longer than the kernel's limit.

    Returns:
        A connected unix socket.

    Raises:
        OSError: If nobody listens.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"/proc/self/fd/{fd}/{name}")
    except OSError:
        connection.close()
        raise
    finally:
        os.close(fd)
    return connection
