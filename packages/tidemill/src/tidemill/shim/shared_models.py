"""Model archives that are unpacked once per content, and shown read-only to all instances that serve them.

The files are below ``models/SHA256`` of the state directory. Each shim that uses them holds a shared lock on the
directory while it runs. The first shim unpacks the archive under an exclusive lock; other shims wait. If the first shim
is killed, the next one unpacks the archive again. A shim that ends removes all models that no shim has locked.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Generator
from pathlib import Path

from tidemill._shared.trees import remove_tree
from tidemill.core.process import ProcessId

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PAUSE_S = 0.05


@contextlib.contextmanager
def shared_model(
    models: Path, sha256: str, *, unpack: Callable[[], Path], wait: Callable[[float], None]
) -> Generator[Path]:
    """Yield the directory with the files of a model archive. The files are kept until the context is left.

    Args:
        models: Directory of all models; created if missing.
        sha256: Digest of the archive, hexadecimal.
        unpack: Called if the files do not exist. Unpacks the archive and returns the directory with its files, which is
            then moved.
        wait: Called with a number of seconds to wait while another process unpacks the archive; an exception ends the
            wait.

    Raises:
        ValueError: ``sha256`` is not a SHA-256. Checked because it becomes part of a path.
        OSError: The directory cannot be written.
    """
    if not _DIGEST.fullmatch(sha256):
        raise ValueError(f"{sha256!r} is no SHA-256; expected 64 characters of 0-9a-f")
    models.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        fd = _locked_files(models / sha256, unpack, wait)
        try:
            yield _files_of(models / sha256)
        finally:
            os.close(fd)
    finally:
        with contextlib.suppress(OSError):  # the next shim removes the rest
            _remove_unused(models)


def _locked_files(directory: Path, unpack: Callable[[], Path], wait: Callable[[float], None]) -> int:
    """Return a descriptor with a shared lock on a directory that has the files."""
    while True:
        files = _files_of(directory)
        fd = _lock(directory, fcntl.LOCK_SH if files.is_dir() else fcntl.LOCK_EX)
        if fd is None:
            wait(_PAUSE_S)
            continue
        try:
            if not files.is_dir():
                _fill(directory, unpack)
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # Changing the kind of a lock releases it for a moment, in which an ending shim may have removed the files.
            if files.is_dir() and _is_at(fd, directory):
                return fd
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _lock(directory: Path, kind: int) -> int | None:
    """Return a descriptor of the directory with a lock; None if another process holds a conflicting lock."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # another process has just removed it
        return None
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    if _is_at(fd, directory):
        return fd
    os.close(fd)
    return None


def _is_at(fd: int, directory: Path) -> bool:
    """Return whether ``directory`` is still the opened directory; a lock on a removed directory protects nothing."""
    try:
        return os.path.samestat(os.fstat(fd), directory.stat())
    except FileNotFoundError:
        return False


def _fill(directory: Path, unpack: Callable[[], Path]) -> None:
    for left in list(directory.iterdir()):  # from a killed shim, or from before a restart of the machine
        remove_tree(left)
    partial = directory / "partial"
    shutil.move(unpack(), partial)
    partial.rename(_files_of(directory))


def _files_of(directory: Path) -> Path:
    """Return the directory of the files. Its name changes with a restart of the machine, which may lose files."""
    return directory / f"files-{ProcessId.own().boot_id}"


def _remove_unused(models: Path) -> None:
    """Remove every model that no process has locked."""
    for directory in list(models.iterdir()):
        fd = _lock(directory, fcntl.LOCK_EX) if _DIGEST.fullmatch(directory.name) else None
        if fd is None:
            continue
        try:
            remove_tree(directory)
        finally:
            os.close(fd)
