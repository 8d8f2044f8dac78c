"""A content file that is being written: hashed during writing, made durable at its final path.

All functions block; `tidemill.store.objects.disk_place` calls them in threads, one call after the other.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Generator, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tidemill.core import faults
from tidemill.core.files import sync_directory
from tidemill.errors import PayloadMismatch
from tidemill.store.objects.errors import ObjectDamaged

COPY_BYTES = 1024 * 1024
PARALLEL_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024
_FICLONE = 0x40049409


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One durable content of the store.

    Attributes:
        md5: MD5 in hexadecimal; empty if it was not computed.
        sha256: SHA-256 in hexadecimal.
    """

    content_id: str
    size_bytes: int
    md5: str
    sha256: str


class Digest(Protocol):
    """A hash, or another object that processes bytes incrementally."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Process the next bytes.

        Args:
            data: A piece of the content; not kept.
        """
        ...


class Draft:
    """One file that is being written to the store.

    Args:
        path: Path of the temporary file.
        target: Path of the complete file; its name becomes the content id.
        digests: Further hashes to update with every byte, besides MD5 and SHA-256.
        hashers: Compute MD5 and SHA-256 of large chunks, each in a thread of its own, while another one computes the
            other hashes and writes. One syncs the directory while another one syncs the file.
        has_md5: Whether to compute the MD5, which takes twice the time of a copy. Default: true.
    """

    def __init__(
        self,
        path: Path,
        *,
        target: Path,
        hashers: Executor,
        digests: Iterable[Digest] = (),
        has_md5: bool = True,
    ) -> None:
        self.content_id = target.name
        self._path = path
        self._target = target
        self._fd = -1
        self._size_bytes = 0
        self._is_clone = False
        self._md5 = hashlib.md5(usedforsecurity=False) if has_md5 else None
        self._sha256 = hashlib.sha256()
        self._hashes = [each for each in (self._md5, self._sha256) if each is not None]
        self._digests = tuple(digests)
        self._hashers = hashers

    def append(self, chunks: Iterable[bytes]) -> None:
        """Write and hash ``chunks``.

        Args:
            chunks: Pieces in order.
        """
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
        for chunk in chunks:
            with self._hashed(chunk):
                _write_all(self._fd, chunk)

    def finish(self, chunks: Iterable[bytes], *, sha256: str | None = None) -> Content:
        """Write the last ``chunks`` and move the file to its final path, durably.

        Args:
            sha256: Expected SHA-256 of the file in hexadecimal. Default: not known.

        Raises:
            PayloadMismatch: The file does not have this SHA-256.
        """
        self.append(chunks)
        if sha256 is not None and self._sha256.hexdigest() != sha256:
            raise PayloadMismatch
        return self._place()

    def clone(self, source_fd: int, size_bytes: int) -> None:
        """Share the first blocks of an open file, if the file system can (reflink). `fill` then does nothing.

        Args:
            source_fd: Descriptor of the source, open for reading.
        """
        self.append(())
        with contextlib.suppress(OSError):  # another file system, or one without reflinks
            fcntl.ioctl(self._fd, _FICLONE, source_fd)
            self._is_clone = True
        if os.fstat(self._fd).st_size > size_bytes:  # the file has grown
            os.ftruncate(self._fd, size_bytes)

    def fill(self, source_fd: int, begin: int, end: int) -> None:
        """Write a range of an open file, which `digest` hashes. The kernel copies, without a pass through this process.

        Args:
            begin: Offset in bytes: 0, or where the last range has ended.

        Raises:
            EOFError: The file ends before the range.
        """
        while begin < end and not self._is_clone:
            count = os.sendfile(self._fd, source_fd, begin, end - begin)
            if not count:
                raise EOFError(f"the file ends after {begin} bytes")
            begin += count

    def digest(self, begin: int, end: int) -> None:
        """Hash a range of the file itself; may run while `fill` writes the next range, or while `sync` runs.

        Raises:
            EOFError: The file ends before the range.
        """
        buffer = memoryview(bytearray(_READ_BYTES))  # reused: fresh memory costs more than hashing
        with self._path.open("rb", buffering=0) as file:
            file.seek(begin)
            while self._size_bytes < end:
                count = file.readinto(buffer[: end - self._size_bytes])
                if not count:
                    raise EOFError(f"the file ends after {self._size_bytes} bytes")
                for each in (*self._hashes, *self._digests):
                    each.update(buffer[:count])
                self._size_bytes += count

    def join(self, sources: Iterable[tuple[Path, str]]) -> Content:
        """Write the concatenation of files, each checked by its SHA-256, and move the file to its final path.

        Raises:
            ObjectDamaged: A source is missing or does not have its SHA-256.
        """
        self.append(())
        for path, sha256 in sources:
            if self._append_file(path) != sha256:
                raise ObjectDamaged("an uploaded part is damaged or missing on the disk; upload that part again")
        return self._place()

    def _append_file(self, path: Path) -> str | None:
        """Write the content of a file, and return its SHA-256; None if the file is missing."""
        own = hashlib.sha256()
        try:
            with path.open("rb", buffering=0) as file:
                while chunk := file.read(COPY_BYTES):
                    own.update(chunk)
                    self.append((chunk,))
        except FileNotFoundError:
            return None
        return own.hexdigest()

    def write_range(self, source_fd: int, offset: int, size_bytes: int) -> None:
        """Write a range of an open file, and sync it. `move` completes the draft.

        Raises:
            ObjectDamaged: The file ends before the range.
        """
        self.append(())
        end = offset + size_bytes
        while offset < end:
            chunk = os.pread(source_fd, min(COPY_BYTES, end - offset), offset)
            if not chunk:
                raise ObjectDamaged("the archive was cut short on the disk while it was extracted; send it again")
            self.append((chunk,))
            offset += len(chunk)
        self.sync()

    def move(self) -> Content:
        """Move the file to its final path. It is durable when the file and, after that, `directory` are synced."""
        faults.point("store.object.rename")
        self._path.replace(self._target)
        return Content(
            content_id=self.content_id,
            size_bytes=self._size_bytes,
            md5=self._md5.hexdigest() if self._md5 is not None else "",
            sha256=self._sha256.hexdigest(),
        )

    @property
    def directory(self) -> Path:
        """The directory of the final path."""
        return self._target.parent

    def adopt(self, file: Path) -> Content:
        """Store ``file`` at the final path, by a hard link if possible, otherwise by a copy.

        Raises:
            FileNotFoundError: There is no such file.
        """
        try:
            self._path.hardlink_to(file)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            shutil.copyfile(file, self._path)
        self._path.chmod(0o400)
        self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        while chunk := os.read(self._fd, COPY_BYTES):
            with self._hashed(chunk):
                pass
        return self._place()

    def discard(self) -> None:
        """Remove the file, complete or not."""
        self._close()
        self._path.unlink(missing_ok=True)
        self._target.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _hashed(self, chunk: bytes) -> Generator[None]:
        """Hash ``chunk``, and run the block meanwhile."""
        running: list[Future[None]] = []
        if len(chunk) >= PARALLEL_BYTES:
            running = [self._hashers.submit(each.update, chunk) for each in self._hashes]
        else:
            for each in self._hashes:
                each.update(chunk)
        try:
            for digest in self._digests:
                digest.update(chunk)
            yield
        finally:
            for task in running:
                task.result()
        self._size_bytes += len(chunk)

    def _place(self) -> Content:
        # Renamed first, and both synced at the same time: they then wait for one commit of the file system's journal,
        # instead of for the disk one after the other. A file that a crash leaves unsynced is named by no row.
        content = self.move()
        name = self._hashers.submit(sync_directory, self.directory)
        try:
            self.sync()
        finally:
            name.result()
        return content

    def sync(self) -> None:
        """Make the bytes durable, and close the file."""
        faults.point("store.object.fsync")
        os.fsync(self._fd)
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
