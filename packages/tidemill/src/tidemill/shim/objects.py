"""Copy or link objects of the store into a directory of a job, and never outside of that directory.

Users choose the keys. Each segment of a key is checked before the key becomes a path; a failure names the object's URI.
"""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from tidemill.instance.object_rows import FileRow
from tidemill.instance.spec import Entry, InlineText, ObjectFile, RemoteObject
from tidemill.shim.failures import ClientFailure, InstanceFailure, InternalFailure, of_os_error

_CHUNK_BYTES = 1 << 20
SEGMENT_MAX_BYTES = 255
_FICLONE = 0x40049409
_NOT_LINKABLE = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.ENOTSUP)


class Placer(Protocol):
    """Puts an object of the store at a path that must not exist: `copy_object`, `link_object` or a `Cloner`.

    Called with the object, the path, the directory of the path as the job sees it (``place``, for messages), and a
    function ``check`` that is called between chunks and may end the work by an exception.
    """

    def __call__(self, source: ObjectFile, target: Path, *, place: str, check: Callable[[], None]) -> None: ...


class Download(Protocol):
    """Fetches objects whose content lies in a remote S3 to paths that must not exist."""

    def add(self, entry: RemoteObject, target: Path) -> None:
        """Fetch a remote object.

        Args:
            target: Path of the new file.
        """

    def add_copy(self, source: ObjectFile, target: Path, place_object: Placer) -> None:
        """Fetch an object of the store through a local copy, which other jobs may use too.

        Args:
            target: Path of the new file.
            place_object: Puts the copy at the target.
        """


def is_segment(name: str) -> bool:
    """Return whether ``name`` can be the name of one file or directory.

    Args:
        name: Any text.
    """
    return _segment_fault(name) is None


def copy_channel(
    objects: Iterable[Entry],
    directory: Path,
    *,
    place: str,
    check: Callable[[], None],
    download: Download,
    place_object: Placer | None = None,
) -> tuple[int, int]:
    """Put the objects of a channel below ``directory``, which exists and is empty.

    Args:
        objects: The objects, in any order.
        place: The same directory as the job sees it, for messages.
        check: Called between chunks; an exception ends the copy.
        download: Fetches objects whose content lies in a remote S3, now or later.
        place_object: Puts an object of the store at a path. Default: `copy_object`.

    Returns:
        The number of files, and of bytes.

    Raises:
        ClientFailure: A key is not a path below the channel or collides with another key, or the disk is full.
        InternalFailure: The store's file is missing or damaged.
    """
    place_object = place_object or copy_object
    made: set[str] = set()
    files = size_bytes = 0
    for each in objects:
        if isinstance(each, InlineText):
            raise InternalFailure("the text of a manifest is for Pipe mode: it has no name to be a file of")
        is_folder = each.name.endswith("/") and each.size_bytes == 0  # as S3 consoles create folders
        *parents, _ = segments = each.name.removesuffix("/" if is_folder else "").split("/")
        _check_segments(segments, each.uri)
        _make_directory("/".join(segments if is_folder else parents), each.uri, directory, made, place=place)
        if is_folder:
            continue
        if isinstance(each, RemoteObject):
            download.add(each, directory / each.name)
        elif each.origin_uri:
            download.add_copy(each, directory / each.name, place_object)
        else:
            place_object(each, directory / each.name, place=place, check=check)
        files += 1
        size_bytes += each.size_bytes
    return files, size_bytes


def copy_object(source: ObjectFile, target: Path, *, place: str, check: Callable[[], None]) -> None:
    """Copy one object to ``target``, which must not exist, and verify its digest.

    Args:
        target: Path of the new file.
        place: Directory of ``target`` as the job sees it, for messages.
        check: Called between chunks; an exception ends the copy.

    Raises:
        ClientFailure: The name is taken, or the disk is full.
        InternalFailure: The store's file is missing or damaged.
    """
    try:
        source_fd = os.open(source.file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InternalFailure(f"{source.uri} cannot be read from the object store: {error.strerror}") from error
    digest = hashlib.sha256()
    with os.fdopen(source_fd, "rb", buffering=0) as reader, new_file(target, uri=source.uri, place=place) as write:
        while chunk := reader.read(_CHUNK_BYTES):
            check()
            digest.update(chunk)
            write(chunk)
    if digest.hexdigest() != source.sha256:
        raise InternalFailure(f"{source.uri} is damaged in the object store: its content does not match its checksum")


def link_object(source: ObjectFile, target: Path, *, place: str, check: Callable[[], None]) -> None:
    """Link one object to ``target``, which must not exist, and check its size; copy the object if linking fails.

    The digest is not verified, since that would read all bytes. The caller must not write through the link. The
    arguments are those of `copy_object`.

    Raises:
        ClientFailure: The name is taken, or the disk is full.
        InternalFailure: The store's file is missing or damaged.
    """
    check()
    _make_linkable(source.file, uri=source.uri, size_bytes=source.size_bytes, group=os.getgid())
    try:
        os.link(source.file, target)
    except OSError as error:
        _copy_unlinkable(error, source, target, place=place, check=check)


def _copy_unlinkable(
    error: OSError, source: ObjectFile, target: Path, *, place: str, check: Callable[[], None]
) -> None:
    """Copy an object because ``error`` says that it cannot be linked; raise if it cannot be copied there either."""
    if isinstance(error, FileExistsError | IsADirectoryError | NotADirectoryError):
        raise clash(source.uri, place) from error
    if error.errno not in _NOT_LINKABLE:
        raise _key_error(error, source.uri, place) from error
    copy_object(source, target, place=place, check=check)


def link_channel(
    batches: Iterable[Sequence[FileRow]], directory: Path, *, place: str, check: Callable[[], None]
) -> None:
    """Link many objects below ``directory``, which exists and is empty: like `link_object` for each, but faster.

    Args:
        batches: The objects, in any order. Objects of one directory should follow each other.
        place: The same directory as the job sees it, for messages.
        check: Called for each batch; an exception ends the work.

    Raises:
        ClientFailure: A key is not a path below the channel or collides with another key, or the disk is full.
        InternalFailure: A file of the store is missing or damaged.
    """
    group = os.getgid()
    with _Folders(directory, place=place) as folders:
        for uri, name, file, size_bytes, sha256 in _checked(batches, check):
            start = name.rfind("/") + 1
            last, fd = name[start:], folders.open(name[:start], uri)
            if not last and not size_bytes:  # as S3 consoles create folders
                continue
            _check_segments((last,), uri)
            _make_linkable(file, uri=uri, size_bytes=size_bytes, group=group)
            try:
                os.link(file, last, dst_dir_fd=fd)
            except OSError as error:
                source = ObjectFile(uri=uri, name=name, file=file, size_bytes=size_bytes, sha256=sha256)
                _copy_unlinkable(error, source, directory / name, place=place, check=check)


def _checked(batches: Iterable[Sequence[FileRow]], check: Callable[[], None]) -> Iterator[FileRow]:
    for batch in batches:
        check()
        yield from batch


class _Folders:
    """Creates directories below a channel's directory, and keeps the last one open."""

    def __init__(self, directory: Path, *, place: str) -> None:
        self._directory = directory
        self._place = place
        self._made: set[str] = set()
        self._current = ""
        self._fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def open(self, folder: str, uri: str) -> int:
        """Return a descriptor of a directory, which is open until the next call with another directory.

        Args:
            folder: Path of the directory, with a slash at its end; empty for the channel's directory.
            uri: URI of an object in it, for messages.
        """
        if folder != self._current:
            if folder:
                path = folder[:-1]
                _check_segments(path.split("/"), uri)
                _make_directory(path, uri, self._directory, self._made, place=self._place)
            new = os.open(self._directory / folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            os.close(self._fd)
            self._fd, self._current = new, folder
        return self._fd

    def __enter__(self) -> "_Folders":
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)


def _make_linkable(file: str, *, uri: str, size_bytes: int, group: int) -> None:
    """Check that a file of the store has its size, and give it the permissions that a link in a job needs."""
    try:
        found = os.stat(file)  # noqa: PTH116 - twice as fast as pathlib; there may be a million of them
        if found.st_size != size_bytes:
            raise InternalFailure(f"{uri} is damaged in the object store: it has {found.st_size} bytes of {size_bytes}")
        if not found.st_mode & stat.S_IWUSR:
            # An overlay uses the permissions of the file below, and the store's files are read-only.
            os.chmod(file, 0o600)  # noqa: PTH101
        if found.st_gid != group:
            # The file may have the group of a setgid directory. The user namespace does not map that group, so that
            # the kernel would refuse to copy the file.
            os.chown(file, -1, group)
    except OSError as error:
        raise InternalFailure(f"{uri} cannot be read from the object store: {error.strerror}") from error


class Cloner:
    """Creates writable files that share the blocks of objects (reflinks); copies on file systems without reflinks.

    The digest of a shared file is not verified, since that would read all bytes.

    Attributes:
        has_copied: Whether an object was copied.
    """

    def __init__(self) -> None:
        self.has_copied = False

    def __call__(self, source: ObjectFile, target: Path, *, place: str, check: Callable[[], None]) -> None:
        """Put one object at ``target``, which must not exist.

        Raises:
            ClientFailure: The name is taken, or the disk is full.
            InternalFailure: The store's file is missing or damaged.
        """
        check()
        if self.has_copied or not _clone(source, target):
            self.has_copied = True
            copy_object(source, target, place=place, check=check)


def _clone(source: ObjectFile, target: Path) -> bool:
    """Create a file that shares the blocks of an object. Return False, without a file, if that is not possible."""
    with suppress(OSError), open(source.file, "rb", buffering=0) as reader:  # noqa: PTH123 - there may be a million
        if os.fstat(reader.fileno()).st_size != source.size_bytes:
            return False  # copying the object reports the fault
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.ioctl(fd, _FICLONE, reader.fileno())
        except OSError:
            target.unlink()
        else:
            return True
        finally:
            os.close(fd)
    return False


@contextmanager
def new_file(target: Path, *, uri: str, place: str) -> Generator[Callable[[bytes], None]]:
    """Create a file, and yield a function that writes to it.

    Args:
        target: Path of the file, which must not exist.
        uri: URI of the object, for messages.
        place: Directory of the file as the job sees it, for messages.

    Raises:
        ClientFailure: The name is taken, or the disk is full.
    """
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "wb", buffering=0) as writer:

            def write(data: bytes) -> None:
                rest = memoryview(data)
                while rest:
                    rest = rest[writer.write(rest) :]

            yield write
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        raise clash(uri, place) from error
    except OSError as error:
        raise _key_error(error, uri, place) from error


def check_key(path: str, uri: str) -> None:
    """Check that ``path`` can be the path of a file below a channel.

    Args:
        uri: URI of the object, for messages.

    Raises:
        ClientFailure: A segment of the path cannot be a file name.
    """
    _check_segments(path.split("/"), uri)


def _check_segments(segments: Sequence[str], uri: str) -> None:
    for segment in segments:
        fault = _segment_fault(segment)
        if fault:
            raise ClientFailure(
                f"object key leaves the channel or cannot be a file name: {uri} has the segment"
                f" {segment[:80]!r}, which {fault}. Rename the object"
            )


def _make_directory(path: str, uri: str, directory: Path, made: set[str], *, place: str) -> None:
    if not path or path in made:
        return
    try:
        (directory / path).mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise clash(uri, place) from error
    except OSError as error:
        raise _key_error(error, uri, place) from error
    made.add(path)


def _segment_fault(segment: str) -> str | None:
    if segment == "":
        return "is empty"
    if segment in (".", ".."):
        return "names another directory"
    if "\0" in segment or "/" in segment:
        return "holds a NUL or a slash"
    try:
        size_bytes = len(segment.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode"
    return f"is {size_bytes} bytes long, more than {SEGMENT_MAX_BYTES}" if size_bytes > SEGMENT_MAX_BYTES else None


def _key_error(error: OSError, uri: str, place: str) -> InstanceFailure:
    if error.errno == errno.ENAMETOOLONG:
        return ClientFailure(f"object key is too long for a path below {place}: {uri[:200]}. Shorten it")
    return of_os_error(error, place=place)


def clash(uri: str, place: str) -> ClientFailure:
    """Return the failure for an object whose name another object or directory below ``place`` has.

    Args:
        place: Directory as the job sees it.
    """
    return ClientFailure(
        f"{uri} clashes with another object below {place}: one name cannot be both a file and a directory, nor two"
        " files. Rename one of them"
    )
