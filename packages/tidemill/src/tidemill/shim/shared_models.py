"""Model archives that are unpacked once per content, and shown read-only to all instances that serve them.

The files are below ``models/SHA256`` of the state directory. Each shim that shows them holds a shared lock on
the directory while it runs. The first one unpacks under an exclusive lock: other shims wait for it, and if it is
killed, the next one unpacks again. A shim that ends removes the models that no shim has locked.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tidemill.core.process import ProcessId
from tidemill.environments.build_lock import remove_tree

__all__ = ["shared_model"]

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PAUSE_S = 0.05


@contextlib.contextmanager
def shared_model(
    models: Path, sha256: str, *, unpack: Callable[[], Path], wait: Callable[[float], None]
) -> Iterator[Path]:
    """Return the directory with the files of a model archive; they stay until the context is left.

    Args:
        models: Directory of all models; created if missing.
        sha256: Digest of the archive, hexadecimal.
        unpack: Called if the files do not exist: unpacks the archive and returns the directory with its files, which
            is moved away.
        wait: Called with a number of seconds while another process unpacks the archive; an exception of it ends the
            wait.

    Raises:
        ValueError: The digest is not one. It could be a user's text, which must not become a path.
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
        with contextlib.suppress(OSError):  # the next one removes what is left
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
            # Between two locks there is no protection: another shim that ends may have removed the files.
            if files.is_dir() and _is_at(fd, directory):
                return fd
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _lock(directory: Path, kind: int) -> int | None:
    """Return a descriptor of the directory with a lock; None if another process is in the way."""
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:  # it was removed in this moment
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
    """Return whether the directory still has its name: a lock on a removed one protects nothing."""
    try:
        return os.path.samestat(os.fstat(fd), directory.stat())
    except FileNotFoundError:
        return False


def _fill(directory: Path, unpack: Callable[[], Path]) -> None:
    for left in list(directory.iterdir()):  # by a shim that was killed, or before the machine was restarted
        remove_tree(left)
    partial = directory / "partial"
    shutil.move(unpack(), partial)
    partial.rename(_files_of(directory))


def _files_of(directory: Path) -> Path:
    """The place of the files. After a restart of the machine, which may have lost some of them, it is another one."""
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
