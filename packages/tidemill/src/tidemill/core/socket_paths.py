"""Addresses of unix sockets whose paths may be longer than the 108 bytes of an address."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path


@contextlib.contextmanager
def short_path(path: Path) -> Generator[str]:
    """Yield a path of a socket that fits into an address, through a descriptor of its directory.

    Args:
        path: Path of the socket, which need not exist.

    Raises:
        OSError: There is no such directory.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
