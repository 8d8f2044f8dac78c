"""TensorBoard's event files of a running instance of this machine."""

import os
from collections.abc import Iterator

from tidemill._shared.trees import walk
from tidemill.core.names import KEY_MAX_BYTES
from tidemill.executors.base import EventFile
from tidemill.instance.directory import InstanceDirectory
from tidemill.shim.beneath import open_beneath

_DIRECTORIES = ("output/tensorboard", "output/data", "model", "checkpoints")
"""Directories below ``/opt/ml`` in which event files are looked for."""
_MARK = "tfevents"  # part of the name of every event file


def event_files_of(directory: InstanceDirectory) -> Iterator[EventFile]:
    """Yield the event files that an instance has written so far; links are not followed.

    Args:
        directory: Directory of the instance.
    """
    for top in _DIRECTORIES:
        try:
            fd = open_beneath(directory.ml, top, directory=True)
        except OSError:
            continue  # there is none, or the script has replaced it
        try:
            for each in walk(fd, max_path_bytes=KEY_MAX_BYTES, on_error=lambda error: None):
                if _MARK in each.name and not each.is_directory:
                    status = each.status()
                    yield EventFile(f"{top}/{each.path}", status.st_size, f"{status.st_dev}.{status.st_ino}")
        except OSError:
            continue  # removed meanwhile
        finally:
            os.close(fd)


def open_event_file(directory: InstanceDirectory, name: str) -> int:
    """Return a descriptor of an event file, which the caller closes.

    Args:
        name: Its name, from `event_files_of`.

    Raises:
        OSError: It was removed or replaced by a link.
    """
    return open_beneath(directory.ml, name)
