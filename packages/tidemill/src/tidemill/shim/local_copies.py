"""Local copies of objects whose content lies in a remote S3: fetched once per machine, then linked by every job.

A copy under its final name is complete and verified. If several shims need the same copy, the first fetches it into
``NAME.part``, under a lock, and the others wait. The service removes the least recently used copies, so a copy may
disappear before it is linked; then it is fetched again.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.core.files import sync_directory
from tidemill.core.remotes import RemoteS3
from tidemill.instance.spec import ObjectFile, RemoteObject
from tidemill.shim.failures import ClientFailure, InternalFailure, of_os_error
from tidemill.shim.objects import Placer, copy_object

if TYPE_CHECKING:  # imports TLS, which most jobs and services do not need
    from tidemill.instance.transfers import Transfers

_TRIES = 3
_PAUSE_S = 0.1
_CHUNK_BYTES = 1 << 20


def bring_object(
    source: ObjectFile, target: Path, *, remotes: Mapping[str, RemoteS3], place: str, check: Callable[[], None]
) -> None:
    """Copy one object to ``target``, which must not exist; fetch its local copy first if its content is in a remote S3.

    Args:
        target: Path of the new file.
        remotes: The remote S3 stores by bucket name or pattern.
        place: Directory of ``target`` as the job sees it, for messages.
        check: Called between chunks; an exception ends the work.

    Raises:
        ClientFailure: The object cannot be fetched, the name is taken, or the disk is full.
        InternalFailure: The content is missing or damaged.
    """
    if not source.origin_uri:
        copy_object(source, target, place=place, check=check)
        return
    from tidemill.instance.remote_stores import RemoteStores
    from tidemill.instance.transfers import Transfers

    with Transfers(RemoteStores(remotes)) as transfers:
        place_copy(source, target, place=place, transfers=transfers, check=check, place_object=copy_object)


def place_copy(
    source: ObjectFile,
    target: Path,
    *,
    place: str,
    transfers: "Transfers",
    check: Callable[[], None],
    place_object: Placer,
) -> None:
    """Put an object at ``target``, which must not exist; fetch its local copy first if it is missing.

    Args:
        source: The object. An object without an origin is not fetched.
        target: Path of the new file.
        place: Directory of ``target`` as the job sees it, for messages.
        transfers: Read the remote S3.
        check: Called between chunks; an exception ends the work.

    Raises:
        ClientFailure: The object cannot be fetched, the name is taken, or the disk is full.
        InternalFailure: The content in the remote S3 does not match the object's checksum.
    """
    origin = source.origin
    for tries_left in reversed(range(_TRIES)):
        if origin is not None:
            _ensure(source, origin, transfers, check)
        try:
            place_object(source, target, place=place, check=check)
        except InternalFailure:
            if origin is None or not tries_left:
                raise
            # The copy was removed meanwhile, or damaged by a crash of the machine.
            Path(source.file).unlink(missing_ok=True)
            target.unlink(missing_ok=True)
        else:
            return


def _ensure(source: ObjectFile, origin: RemoteObject, transfers: "Transfers", check: Callable[[], None]) -> None:
    copy = Path(source.file)
    if _is_used(copy, source.size_bytes):
        return
    part = copy.with_name(f"{copy.name}.part")
    try:
        with closing(_locked(part, transfers, check)) as file:
            if _is_used(copy, source.size_bytes):  # another process has fetched it meanwhile
                part.unlink()
                return
            _fetch(source, origin, file.fd, transfers, check)
            part.replace(copy)
            sync_directory(copy.parent)
    except OSError as error:
        raise of_os_error(error, place=str(copy.parent)) from error


def _is_used(copy: Path, size_bytes: int) -> bool:
    """Return whether the copy exists; if so, mark it as used now."""
    with contextlib.suppress(FileNotFoundError):
        if copy.stat().st_size == size_bytes:
            os.utime(copy)
            return True
    return False


class _Locked:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        os.close(self.fd)


def _locked(part: Path, transfers: "Transfers", check: Callable[[], None]) -> _Locked:
    """Open the file into which a copy is fetched, with an exclusive lock."""
    while True:
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have become the copy, or have been removed, between open and lock.
            if os.path.samestat(os.fstat(fd), part.stat()):
                return _Locked(fd)
        except (BlockingIOError, FileNotFoundError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        transfers.check()
        check()
        transfers.pause(_PAUSE_S)


def _fetch(
    source: ObjectFile, origin: RemoteObject, fd: int, transfers: "Transfers", check: Callable[[], None]
) -> None:
    from tidemill.instance.transfers import RemoteBody, RemoteFault

    os.ftruncate(fd, 0)
    digest = hashlib.sha256()
    try:
        with closing(RemoteBody(origin, transfers).pieces(_CHUNK_BYTES)) as pieces:
            for piece in pieces:
                check()
                digest.update(piece)
                _write(fd, piece)
    except RemoteFault as fault:
        raise ClientFailure(f"{source.uri}: {fault}") from fault
    if digest.hexdigest() != source.sha256:
        raise InternalFailure(
            f"{source.uri} is damaged: what {origin.uri} has does not match the object's checksum. Put it again"
        )
    os.fsync(fd)


def _write(fd: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(fd, rest) :]
