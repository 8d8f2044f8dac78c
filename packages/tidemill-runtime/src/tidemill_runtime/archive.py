"""Unpack a .tar.gz from an untrusted source.

``tarfile`` only parses headers here: its own extraction, including its filters, has had escapes. Every name is resolved
segment by segment from one directory descriptor without following links, every file is created anew, links are created
last and only if they stay inside, and bytes and entries are counted against limits while they are read.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import stat
import tarfile
import time
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tidemill_runtime._shared.trees import remove_tree
from tidemill_runtime.errors import InvalidArchive

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path
    from typing import IO

MAX_NAME_BYTES = 1024
MAX_SEGMENT_BYTES = 255
MAX_HEADER_BYTES = 1 << 20
MAX_MTIME_S = 1 << 33
BLOCK_BYTES = 512
CHUNK_BYTES = 1 << 18
SHOWN_EVERY_S = 2.0


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits of an archive.

    Attributes:
        max_bytes: Bytes after decompression, headers included.
        max_entries: Members of any kind.
    """

    max_bytes: int = 64 << 30
    max_entries: int = 200_000


def extract(
    archive: Path,
    directory: Path,
    *,
    limits: ArchiveLimits | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> None:
    """Unpack ``archive`` into ``directory``, which is created if it is missing.

    Files keep their modification time and their permission bits, except setuid, setgid and sticky. If the archive is
    refused, a directory that was empty before is empty again.

    Args:
        archive: A gzip-compressed tar file.
        directory: Nothing is written outside it, and no existing file in it is overwritten.
        limits: The limits. Default: those of `ArchiveLimits`.
        show: Called every two seconds with a progress line, which ends with a carriage return. Default: no progress.

    Raises:
        InvalidArchive: The archive is broken, exceeds a limit, or has a member that is not allowed.
        OSError: The archive cannot be read, or the directory cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    fresh = not any(directory.iterdir())
    try:
        with archive.open("rb") as file:
            _extract(file, directory, limits or ArchiveLimits(), _UnpackingProgress(file, directory, show))
    except BaseException:
        if fresh:
            _empty(directory)
        raise


@dataclass
class _Links:
    """Links are created after all files, so that no member can be written through a link."""

    symbolic: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    hard: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)


class _Header(tarfile.TarInfo):
    """A header that raises if it is damaged. ``tarfile`` treats a damaged header as the end of the archive."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> _Header:
        try:
            return cast("_Header", super().fromtarfile(tarfile))
        except Exception as error:
            if type(error).__name__ in ("InvalidHeaderError", "SubsequentHeaderError", "TruncatedHeaderError"):
                raise InvalidArchive(f"not a gzip tar: a header is damaged ({error})") from error
            raise


class _UnpackingProgress:
    """Shows the progress of unpacking. The remaining time follows from the compressed bytes that were read."""

    def __init__(self, file: IO[bytes], directory: Path, show: Callable[[str], None]) -> None:
        self._file = file
        self._directory = directory
        self._show = show
        self._begun_s = self._shown_s = time.monotonic()

    def note(self, done_bytes: int) -> None:
        """Show the number of unpacked bytes every two seconds."""
        now_s = time.monotonic()
        if now_s - self._shown_s < SHOWN_EVERY_S:
            return
        self._shown_s = now_s
        size_bytes = os.fstat(self._file.fileno()).st_size
        done = self._file.tell() / max(1, size_bytes)
        left_s = (now_s - self._begun_s) * (1 - done) / done if done else 0
        megabytes = f"{done_bytes / 1e6:.0f} MB, {done:.0%} of the archive"
        self._show(f"tidemill: unpacking {self._directory}: {megabytes}, {left_s:.0f} s left\r")


class _Stream:
    """A forward-only view of the decompressed archive that counts the bytes read."""

    def __init__(self, file: IO[bytes], progress: _UnpackingProgress, *, max_bytes: int) -> None:
        self._file = file
        self._progress = progress
        self._max_bytes = max_bytes
        self._position = 0

    def read(self, size_bytes: int) -> bytes:
        if not 0 <= size_bytes <= MAX_HEADER_BYTES:
            raise InvalidArchive(f"a header claims {size_bytes} bytes; at most {MAX_HEADER_BYTES} are read")
        data = self._file.read(size_bytes)
        self._position += len(data)
        if self._position > self._max_bytes:
            raise InvalidArchive(
                f"expands over {self._max_bytes} bytes: raise the limit if the content is really yours"
            )
        self._progress.note(self._position)
        return data

    def seek(self, position: int) -> int:
        if position < self._position:
            raise InvalidArchive("a member lies before the end of the one that precedes it")
        while self._position < position:
            if not self.read(min(CHUNK_BYTES, position - self._position)):
                break
        return self._position

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        self._file.close()


def _extract(file: IO[bytes], directory: Path, limits: ArchiveLimits, progress: _UnpackingProgress) -> None:
    stream = _Stream(cast("IO[bytes]", gzip.GzipFile(fileobj=file)), progress, max_bytes=limits.max_bytes)
    root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _readable_errors():
            links = _Links()
            files: set[tuple[str, ...]] = set()
            for member in _members(stream, limits):
                _unpack(member, stream, root, links, files)
            while stream.read(CHUNK_BYTES):
                pass  # read to the end: gzip keeps its checksum there
            _make_links(root, links, files)
    finally:
        os.close(root)


@contextlib.contextmanager
def _readable_errors() -> Generator[None]:
    """Convert the errors that the parsers raise on invalid data to InvalidArchive."""
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InvalidArchive(f"not a gzip tar: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        # The gzip module's error, which is a separate class (BadGzipFile) only since Python 3.8.
        raise InvalidArchive(f"not a gzip tar: {error}") from error
    except (ValueError, OverflowError, RecursionError, IndexError, KeyError) as error:
        raise InvalidArchive(f"not a gzip tar: a header cannot be read ({type(error).__name__}: {error})") from error


def _members(stream: _Stream, limits: ArchiveLimits) -> Iterator[tarfile.TarInfo]:
    archive = tarfile.TarFile(
        fileobj=cast("IO[bytes]", stream), mode="r", tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
    )
    entries = 0
    while True:
        member = archive.next()
        if member is None:
            return
        archive.members = []  # pyrefly: ignore[missing-attribute] - the stubs leave it out; it keeps all headers
        entries += 1
        if entries > limits.max_entries:
            raise InvalidArchive(f"too many entries: more than {limits.max_entries}")
        yield member


def _unpack(member: tarfile.TarInfo, stream: _Stream, root: int, links: _Links, files: set[tuple[str, ...]]) -> None:
    name = _segments(member.name, what="member")
    if member.isdir():
        os.close(_open_directory(root, name))
    elif not name:
        raise InvalidArchive(f"member {_shown(member.name)} has no name")
    elif member.issym():
        _check_new(name, links)
        links.symbolic[name] = _symlink_target(name, member.linkname)
    elif member.islnk():
        _check_new(name, links)
        links.hard[name] = _segments(member.linkname, what="target of hard link")
    elif member.isreg() and not member.issparse():
        _check_new(name, links)
        _write_file(member, name, stream, root)
        files.add(name)
    else:
        raise InvalidArchive(
            f"member {_shown(member.name)} is a {_kind(member)}: only files, directories and links are allowed"
        )


def _segments(name: str, *, what: str) -> tuple[str, ...]:
    """Split a name that must stay inside the directory; ``()`` is the directory itself."""
    if name.startswith("/"):
        raise InvalidArchive(f"{what} {_shown(name)} has an absolute path")
    if "\0" in name or len(os.fsencode(name)) > MAX_NAME_BYTES:
        raise InvalidArchive(f"{what} {_shown(name)} has a name above {MAX_NAME_BYTES} bytes or with a NUL in it")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise InvalidArchive(f"{what} {_shown(name)} leaves the directory")
    if any(len(os.fsencode(part)) > MAX_SEGMENT_BYTES for part in parts):
        raise InvalidArchive(f"{what} {_shown(name)} has a segment above {MAX_SEGMENT_BYTES} bytes")
    return parts


def _symlink_target(name: tuple[str, ...], target: str) -> tuple[str, ...]:
    """Return the target of a symbolic link, relative to the directory; ``_make_links`` checks it."""
    if not target or target.startswith("/") or "\0" in target or len(os.fsencode(target)) > MAX_NAME_BYTES:
        raise InvalidArchive(
            f"symbolic link {_shown('/'.join(name))} points to {_shown(target)}: only inside is allowed"
        )
    place = list(name[:-1])
    for part in target.split("/"):
        if part == "..":
            if not place:
                raise InvalidArchive(f"symbolic link {_shown('/'.join(name))} to {_shown(target)} leaves the directory")
            place.pop()
        elif part not in ("", "."):
            place.append(part)
    return tuple(place)


def _check_new(name: tuple[str, ...], links: _Links) -> None:
    if name in links.symbolic or name in links.hard:
        raise InvalidArchive(f"duplicate member {_shown('/'.join(name))}")


def _open_directory(root: int, segments: tuple[str, ...]) -> int:
    """Open a directory below ``root`` without following links, and create missing directories."""
    fd = os.dup(root)
    for number, segment in enumerate(segments):
        shown = _shown("/".join(segments[: number + 1]))
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(segment, 0o755, dir_fd=fd)
            deeper = os.open(segment, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise InvalidArchive(f"{shown} is both a directory and something else") from error
            raise
        finally:
            os.close(fd)
        fd = deeper
    return fd


def _write_file(member: tarfile.TarInfo, name: tuple[str, ...], stream: _Stream, root: int) -> None:
    parent = _open_directory(root, name[:-1])
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name[-1], flags, 0o600, dir_fd=parent)
    except FileExistsError as error:
        raise InvalidArchive(f"duplicate member {_shown('/'.join(name))}") from error
    finally:
        os.close(parent)
    with os.fdopen(fd, "wb", buffering=0) as file:
        _copy(stream, file, size_bytes=member.size, name=name)
        os.fchmod(fd, (stat.S_IMODE(member.mode) & 0o777) | 0o600)
        if 0 <= member.mtime <= MAX_MTIME_S:
            os.utime(fd, (member.mtime, member.mtime))


def _copy(stream: _Stream, file: IO[bytes], *, size_bytes: int, name: tuple[str, ...]) -> None:
    left = size_bytes
    if left < 0:
        raise InvalidArchive(f"member {_shown('/'.join(name))} claims {size_bytes} bytes")
    while left:
        chunk = stream.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise InvalidArchive(f"not a gzip tar: it ends inside of {_shown('/'.join(name))}")
        view = memoryview(chunk)
        while view:
            view = view[file.write(view) :]
        left -= len(chunk)


def _make_links(root: int, links: _Links, files: set[tuple[str, ...]]) -> None:
    for name, target in links.hard.items():
        if target not in files:
            raise InvalidArchive(f"hard link {_shown('/'.join(name))} points to no file of the archive")
        _make_hard_link(root, name, target)
    for name, target in links.symbolic.items():
        _check_chain(name, target, links)
    for name, target in links.symbolic.items():
        _make_symbolic_link(root, name, target)


def _check_chain(name: tuple[str, ...], target: tuple[str, ...], links: _Links) -> None:
    """Refuse a link whose target leads through another link, because ``..`` would then have another meaning.

    A link to a link (``libx.so -> libx.so.1 -> libx.so.1.2``) is allowed if the chain ends.
    """
    seen = {name}
    while True:
        if any(target[:depth] in links.symbolic for depth in range(1, len(target))):
            raise InvalidArchive(f"symbolic link {_shown('/'.join(name))} leads through another symbolic link")
        if target not in links.symbolic:
            return
        if target in seen:
            raise InvalidArchive(f"symbolic link {_shown('/'.join(name))} leads back to itself")
        seen.add(target)
        target = links.symbolic[target]


def _make_hard_link(root: int, name: tuple[str, ...], target: tuple[str, ...]) -> None:
    source, parent = _open_directory(root, target[:-1]), _open_directory(root, name[:-1])
    try:
        os.link(target[-1], name[-1], src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError as error:
        raise InvalidArchive(f"duplicate member {_shown('/'.join(name))}") from error
    finally:
        os.close(source)
        os.close(parent)


def _make_symbolic_link(root: int, name: tuple[str, ...], target: tuple[str, ...]) -> None:
    parent = _open_directory(root, name[:-1])
    try:
        relative = os.path.relpath("/" + "/".join(target), "/" + "/".join(name[:-1]))
        os.symlink(relative, name[-1], dir_fd=parent)
    except FileExistsError as error:
        raise InvalidArchive(f"duplicate member {_shown('/'.join(name))}") from error
    finally:
        os.close(parent)


def _kind(member: tarfile.TarInfo) -> str:
    if member.issparse():
        return "sparse file"
    if member.ischr() or member.isblk():
        return "device"
    return "fifo" if member.isfifo() else f"member of unknown type {member.type!r}"


def _shown(name: str) -> str:
    """Return a name for messages: quoted, escaped, at most one line long."""
    text = ascii(name)
    return text if len(text) <= 120 else f"{text[:60]}...{text[-50:]}"


def _empty(directory: Path) -> None:
    for path in list(directory.iterdir()):
        remove_tree(path)
