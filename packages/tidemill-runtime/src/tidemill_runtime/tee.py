"""Passes the script's standard error on unchanged as it arrives, and keeps its end for messages."""

from __future__ import annotations

import os

KEPT_BYTES = 16 << 10


class Tail:
    """The last 16 KiB of a stream.

    Args:
        fd: File descriptor to which the bytes are written.
    """

    def __init__(self, fd: int = 2) -> None:
        self._fd = fd
        self._kept = bytearray()

    def pass_on(self, data: bytes) -> None:
        """Write the bytes and keep their end. If the reader has closed the descriptor, the bytes are only kept.

        Args:
            data: A piece of standard error.
        """
        self._kept += data
        del self._kept[:-KEPT_BYTES]
        try:
            write_all(self._fd, data)
        except BrokenPipeError:
            self._fd = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def text(self) -> str:
        """Return the kept bytes as text; invalid UTF-8 becomes replacement characters."""
        return self._kept.decode("utf-8", "replace")


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes, with several system calls if necessary.

    Args:
        fd: A blocking descriptor.
        data: Any number of bytes.

    Raises:
        OSError: If the descriptor cannot be written, as `os.write` raises it.
    """
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
