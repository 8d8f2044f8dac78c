"""Find layers that jobs have changed in isolation mode ``plain``, in which nothing protects shared layers.

While a process runs whose job can write to a layer, the file ``NAME.writable`` beside the layer exists, and the process
holds a lock on it. A layer without that file is as it was built, and costs no check. Otherwise sizes, inodes and times
of all files are compared with those after the build.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path

from tidemill._shared.trees import walk
from tidemill.environments.build_lock import Built, try_lock
from tidemill.environments.uv_command import BuildWatch

_RETRY_S = 0.1


def state_of(directory: Path, *, linked: bool) -> str:
    """Return a digest of the paths, sizes, inodes and times of all files below a directory, except bytecode.

    Bytecode is left out because an interpreter writes it by itself, e.g. with ``PYTHONOPTIMIZE``.

    Args:
        linked: Whether files may be hard links to files of uv's cache. Then the time is that of the last write (mtime);
            the time of the last change (ctime) also changes if another environment links the file. Without links it is
            the ctime, which no program can set.
    """
    found: list[tuple[object, ...]] = []
    for entry in walk(directory, on_error=lambda error: found.append((str(error),))):
        path = entry.path
        if not entry.is_directory and "/__pycache__/" not in f"/{path}":
            status = entry.status()
            changed_ns = status.st_mtime_ns if linked else status.st_ctime_ns
            found.append((path, status.st_size, status.st_ino, changed_ns))
    return hashlib.sha256(repr(found).encode(errors="surrogateescape")).hexdigest()


def check_unchanged(built: Built, *, linked: bool, writable: bool, watch: BuildWatch) -> None:
    """Set a layer aside if a job has changed it, so that it counts as not built. The caller holds the layer.

    Args:
        built: The layer, complete or not.
        linked: As for `state_of`.
        writable: Whether a job of this process can write to the layer. The process then must call `release_writable`
            at its end.
        watch: Gets a line if the layer was changed.
    """
    use = built.directory.with_name(f"{built.directory.name}.writable")
    if not writable and not use.exists():
        return
    with built.locked(poll=watch.poll):
        record = built.marker
        if record is not None and (use.exists() or "state" not in record):
            state = state_of(built.directory, linked=linked)
            # Versions share environments: another way to compute the state needs another name.
            if "state" not in record:  # built by an earlier version
                built.complete({**record, "state": state})
            elif record["state"] != state:
                aside = built.set_aside()
                watch.log(
                    f"tidemill: a job has changed the shared packages in {built.directory} (isolation=plain); they are"
                    f" in {aside.name} beside it now, and are installed again"
                )
        if not writable:
            fd = try_lock(use, fcntl.LOCK_EX)
            if fd is not None:  # the processes whose jobs could write were killed
                use.unlink()
                os.close(fd)
        elif use not in _writable:
            while (fd := try_lock(use, fcntl.LOCK_SH)) is None:
                watch.poll()
                time.sleep(_RETRY_S)
            _writable[use] = (built, linked, fd)


def release_writable() -> None:
    """Record that no job of this process can write to layers any more, and that they are unchanged if so.

    Errors are ignored: the next use of a layer then compares its files.
    """
    while _writable:
        use, (built, linked, fd) = _writable.popitem()
        with contextlib.suppress(OSError, ValueError):
            record = built.marker
            if record and record.get("state") == state_of(built.directory, linked=linked):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while others can write to it
                use.unlink()
        os.close(fd)


_writable: dict[Path, tuple[Built, bool, int]] = {}
"""The layers to which jobs of this process can write, with locked descriptors, by their files."""
