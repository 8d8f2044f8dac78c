"""Pack a directory that a job left into a ``.tar.gz``, without following links.

Two threads share the work: one reads and compresses, the other writes and computes the digests. Both need about the
same time, and both release the interpreter's lock.

An archive that does not fit would fill the disk until it is given up, and what other jobs write meanwhile would fail.
So it is given up when little space is left.
"""

import contextlib
import errno
import hashlib
import os
import queue
import stat
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from tidemill._shared.trees import Entry, walk
from tidemill.core.files import make_directory, sync_directory
from tidemill.core.names import KEY_MAX_BYTES
from tidemill.instance.status import Artifact
from tidemill.shim.beneath import long_path_note, open_beneath
from tidemill.shim.codec import codec
from tidemill.shim.failures import ClientFailure, of_os_error

_GZIP_WINDOW = 31  # a window of 15 bits, with gzip's header and trailer
_LEVEL = 1
_CHUNK_BYTES = 1 << 20
_QUEUE_PIECES = 16
_SPARE_FRACTION = 0.01
_SPARE_BYTES = 64 << 20
_SHOWN_EVERY_S = 2.0


def pack(
    root: Path, relative: str, target: Path, *, place: str, note: Callable[[str], None] = lambda _: None
) -> Artifact | None:
    """Pack the content of ``root/relative`` at the top level of the archive. All processes of the job must have ended.

    Symbolic links are stored as links. A file with several names is stored once per name, since safe extractors refuse
    hard links. Sockets, pipes and devices are omitted, and paths that are too long for keys of S3: `extract` of
    tidemill-runtime refuses them too.

    Args:
        root: The instance's directory for ``/opt/ml``.
        relative: Directory below ``root``, e.g. ``model``.
        place: The packed directory as the job sees it, for messages.
        note: Called every two seconds with a progress line, which ends with a carriage return, and with a line if
            files are left out. Default: no lines.

    Returns:
        Size and digests of the archive; None, without an archive, if the directory is empty or does not exist.

    Raises:
        ClientFailure: ``relative`` is not a directory, a file in it cannot be read, or the disk is full. An archive
            of more than 1 MiB leaves 1 % of the disk free for others, at most 64 MiB.
    """
    try:
        top = open_beneath(root, relative, directory=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientFailure(f"{place} is not a directory any more: {error.strerror}. Do not replace it") from error
    try:
        if not os.listdir(top):  # noqa: PTH208 - a descriptor
            return None  # before there is a file: an empty directory needs no space
        make_directory(target.parent)
        with target.open("wb") as file:
            sink, count = _write_archive(file, top, place, note)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(target.parent)
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
    return Artifact(size_bytes=sink.size_bytes, sha256=sink.sha256.hexdigest(), md5=sink.md5.hexdigest())


def _write_archive(file: IO[bytes], top: int, place: str, note: Callable[[str], None]) -> "tuple[_Sink, int]":
    """Pack the directory ``top``; return what has counted and digested the bytes, and the number of entries."""
    with _Sink(file) as sink:
        writer = _Gzip(sink, _PackProgress(place, top, note))
        with tarfile.open(mode="w|", fileobj=cast("IO[bytes]", writer), format=tarfile.PAX_FORMAT) as archive:
            count = _add_directory(archive, top, place, note)
        writer.finish()
    return sink, count


class _Gzip:
    """File-like object that compresses what is written to it."""

    def __init__(self, sink: "_Sink", progress: "_PackProgress") -> None:
        self._sink = sink
        self._progress = progress
        self._compressor = codec.compressobj(_LEVEL, codec.DEFLATED, _GZIP_WINDOW)

    def write(self, data: bytes) -> int:
        # The tar writer writes pieces of 10 KiB. Compress each piece at once; the sink collects the results.
        self._sink.put(self._compressor.compress(data))
        self._progress.add(len(data))
        return len(data)

    def finish(self) -> None:
        """Write the remaining compressed bytes."""
        self._sink.put(self._compressor.flush())


class _Sink:
    """Writes pieces to a file and computes its digests, in a thread. Leaving the context waits for the thread.

    Attributes:
        size_bytes: Size of the file so far.
        sha256: SHA-256 of the file so far.
        md5: MD5 of the file so far.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._pieces: queue.Queue[bytes] = queue.Queue(_QUEUE_PIECES)
        self._collected: list[bytes] = []
        self._collected_bytes = 0
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="packing")
        self.size_bytes = 0
        self.sha256 = hashlib.sha256()
        self.md5 = hashlib.md5(usedforsecurity=False)

    def __enter__(self) -> "_Sink":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hand_over()
        self._pieces.put(b"")
        self._thread.join()
        if self._error is not None and exception[0] is None:
            raise self._error

    def put(self, data: bytes) -> None:
        """Write ``data``, now or later.

        Raises:
            OSError: This piece or an earlier one could not be written.
        """
        if self._error is not None:
            raise self._error
        self._collected.append(data)
        self._collected_bytes += len(data)
        if self._collected_bytes >= _CHUNK_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._collected_bytes:
            self._pieces.put(b"".join(self._collected))
            self._collected.clear()
            self._collected_bytes = 0

    def _work(self) -> None:
        while piece := self._pieces.get():
            if self._error is not None:  # drain the queue: the other thread must not wait for room in it
                continue
            try:
                if self.size_bytes:
                    _check_space(self._file, len(piece))
                self._file.write(piece)
            except OSError as error:
                self._error = error
            self.size_bytes += len(piece)
            self.sha256.update(piece)
            self.md5.update(piece)


def _check_space(file: IO[bytes], size_bytes: int) -> None:
    disk = os.fstatvfs(file.fileno())
    spare_bytes = min(_SPARE_BYTES, disk.f_blocks * disk.f_frsize * _SPARE_FRACTION)
    if disk.f_bavail * disk.f_frsize - size_bytes < spare_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class _PackProgress:
    """Shows the progress of packing. The total size is measured when the first progress line is due."""

    def __init__(self, place: str, top: int, show: Callable[[str], None]) -> None:
        self._place = place
        self._top = top
        self._show = show
        self._begun_s = self._shown_s = time.monotonic()
        self._done_bytes = self._total_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Add to the number of bytes read, and show the progress every two seconds."""
        self._done_bytes += size_bytes
        now_s = time.monotonic()
        if now_s - self._shown_s < _SHOWN_EVERY_S:
            return
        self._shown_s = now_s
        self._total_bytes = self._total_bytes or _size_bytes(self._top)
        done = min(1.0, self._done_bytes / max(1, self._total_bytes))
        left_s = (now_s - self._begun_s) * (1 - done) / done
        of = f"{self._done_bytes / 1e6:.0f} of {max(self._total_bytes, self._done_bytes) / 1e6:.0f} MB"
        self._show(f"tidemill: packing {self._place}: {of}, {left_s:.0f} s left\r")


def _size_bytes(top: int) -> int:
    """Return the size of the regular files below an open directory."""
    total = 0
    for entry in walk(top, max_path_bytes=KEY_MAX_BYTES, on_error=lambda error: None):
        with contextlib.suppress(OSError):
            status = entry.status()
            total += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return total


def _add_directory(archive: tarfile.TarFile, top: int, place: str, note: Callable[[str], None]) -> int:
    """Add the content of the open directory ``top``, and return the number of entries."""
    count, notes = 0, 0

    def leave_out(entry: Entry) -> None:
        nonlocal notes
        if not notes:
            note(long_path_note(place, entry))
        notes += 1

    for entry in walk(top, max_path_bytes=KEY_MAX_BYTES, left_out=leave_out):
        status = entry.status()
        info = _info(entry.path, status)
        if stat.S_ISLNK(status.st_mode):
            info.type, info.linkname = tarfile.SYMTYPE, os.readlink(entry.name, dir_fd=entry.directory)
            archive.addfile(info)
        elif entry.is_directory:
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        elif stat.S_ISREG(status.st_mode):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            source = os.open(entry.name, flags, dir_fd=entry.directory)
            with os.fdopen(source, "rb", buffering=_CHUNK_BYTES) as file:
                info.size = os.fstat(source).st_size
                archive.addfile(info, file)
        else:
            continue
        count += 1
    return count


def _info(name: str, status: os.stat_result) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(status.st_mode)
    info.mtime = int(status.st_mtime)
    return info
