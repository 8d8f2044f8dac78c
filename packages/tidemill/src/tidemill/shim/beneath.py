"""Read the files that a job left: no link is followed, and nothing blocks.

A job may replace any directory of ``/opt/ml`` by a link to a place that the job itself cannot see.
"""

import os
import stat
from pathlib import Path

from tidemill._shared.trees import Entry
from tidemill.core.names import KEY_MAX_BYTES

_SHOWN_CHARACTERS = 60


def open_beneath(root: Path, relative: str, *, directory: bool = False) -> int:
    """Open ``root/relative`` for reading, without following a link in any segment.

    Args:
        root: A directory of the service; links in this path are followed.
        relative: Path below ``root``, separated by ``/``.
        directory: Open a directory instead of a regular file. Default: false.

    Raises:
        OSError: The file does not exist, a segment is a link, or a directory was found instead of a regular file or
            the reverse.
        ValueError: ``relative`` has a ``..`` segment.
    """
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    segments = [segment for segment in relative.split("/") if segment]
    if ".." in segments:
        os.close(fd)
        raise ValueError(f"{relative!r} leads out of its directory")
    for place, segment in enumerate(segments):
        is_last = place == len(segments) - 1
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            below = os.open(segment, flags | (os.O_DIRECTORY if directory or not is_last else 0), dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISDIR(mode) if directory else stat.S_ISREG(mode)):
        os.close(fd)
        raise FileNotFoundError(f"{root / relative} is not a {'directory' if directory else 'regular file'}")
    return fd


def read_beneath(root: Path, relative: str, *, max_bytes: int) -> bytes | None:
    """Return the beginning of a regular file; None if `open_beneath` cannot open it.

    Args:
        root: A directory of the service, as for `open_beneath`.
        relative: Path below ``root``, separated by ``/``.
        max_bytes: Maximum number of bytes to read.
    """
    try:
        fd = open_beneath(root, relative)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(max_bytes)


def long_path_note(place: str, first: Entry) -> str:
    """Return the line of the log for files that are left out because their paths are too long for keys of S3.

    Args:
        place: The directory as the job sees it.
        first: The first entry below it that is left out.
    """
    path = ascii(first.path)
    shown = path if len(path) <= _SHOWN_CHARACTERS else f"{path[:_SHOWN_CHARACTERS]}...'"
    return (
        f"tidemill: {place} has paths that are too long for keys of S3 ({KEY_MAX_BYTES:,} bytes): these files are left"
        f" out, beginning with {shown}"
    )
