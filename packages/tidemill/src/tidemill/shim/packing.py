"""Pack a directory that a job left into a ``.tar.gz``, without following links; digests are computed while writing."""

import hashlib
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from tidemill.instance.status import Artifact
from tidemill.shim.beneath import open_beneath
from tidemill.shim.failures import ClientFailure, of_os_error

__all__ = ["pack"]

_GZIP_WINDOW = 31  # a window of 15 bits, with gzip's header and trailer
_LEVEL = 1
_CHUNK_BYTES = 1 << 20


def pack(root: Path, relative: str, target: Path, *, place: str) -> Artifact | None:
    """Pack the content of ``root/relative`` at the top level of the archive. All processes of the job have ended.

    Links are stored as links. A file with several names is stored once per name, since safe extractors refuse hard
    links. Sockets, pipes and devices are left out.

    Args:
        root: The instance's ``ml``.
        relative: E.g. ``model``.
        target: The archive.
        place: The directory as the job sees it, for messages.

    Returns:
        None if the directory is empty or does not exist.

    Raises:
        ClientFailure: It is not a directory, something in it cannot be read, or the disk is full.
    """
    try:
        top = open_beneath(root, relative, directory=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientFailure(f"{place} is not a directory any more: {error.strerror}. Do not replace it") from error
    target.parent.mkdir(exist_ok=True)
    try:
        with target.open("wb") as file:
            writer = _DigestingGzip(file)
            with tarfile.open(mode="w|", fileobj=cast("IO[bytes]", writer), format=tarfile.PAX_FORMAT) as archive:
                count = _add_directory(archive, top, "")
            size_bytes = writer.finish()
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        target.unlink(missing_ok=True)
        if isinstance(error, PermissionError):
            raise ClientFailure(f"{place}: {error.filename!r} cannot be read: {error.strerror}") from error
        raise of_os_error(error, place=place) from error
    finally:
        os.close(top)
    if count == 0:
        target.unlink()
        return None
    return Artifact(size_bytes=size_bytes, sha256=writer.sha256.hexdigest(), md5=writer.md5.hexdigest())


class _DigestingGzip:
    """A writable that compresses, and computes the digest of the result."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
        self._size_bytes = 0
        self.sha256 = hashlib.sha256()
        self.md5 = hashlib.md5(usedforsecurity=False)

    def write(self, data: bytes) -> int:
        self._put(self._compressor.compress(data))
        return len(data)

    def finish(self) -> int:
        """Write the rest, and return the size of the archive."""
        self._put(self._compressor.flush())
        return self._size_bytes

    def _put(self, data: bytes) -> None:
        if data:
            self._file.write(data)
            self._size_bytes += len(data)
            self.sha256.update(data)
            self.md5.update(data)


def _add_directory(archive: tarfile.TarFile, fd: int, prefix: str) -> int:
    """Add the content of the open directory ``fd`` below ``prefix``, and return the number of entries."""
    count = 0
    for name, status in _entries(fd):
        info = _info(prefix + name, status)
        if stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(name, dir_fd=fd)
            archive.addfile(info)
        elif stat.S_ISDIR(status.st_mode):
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                count += _add_directory(archive, below, f"{prefix}{name}/")
            finally:
                os.close(below)
        elif stat.S_ISREG(status.st_mode):
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
            with os.fdopen(source, "rb", buffering=_CHUNK_BYTES) as file:
                info.size = os.fstat(source).st_size
                archive.addfile(info, file)
        else:
            continue
        count += 1
    return count


def _entries(fd: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(fd) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        yield name, os.stat(name, dir_fd=fd, follow_symlinks=False)


def _info(name: str, status: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(status.st_mode)
    info.mtime = int(status.st_mtime)
    return info
