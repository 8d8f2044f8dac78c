"""Bringing objects of the store to where a job finds them: copied, verified, and never outside their directory.

Keys are users' text. Each is checked segment by segment before it becomes a path, and a failure names its URI.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.executors.base import Entry, InlineText, ObjectFile, RemoteObject
from tidemill.executors.shim.failures import ClientFailure, InstanceFailure, InternalFailure, of_os_error

__all__ = ["copy_channel", "copy_object", "is_segment", "new_file"]

_CHUNK_BYTES = 1 << 20
_SEGMENT_MAX_BYTES = 255


def is_segment(name: str) -> bool:
    """Whether ``name`` can be the name of one file or directory."""
    return _segment_fault(name) is None


def copy_channel(
    objects: Iterable[Entry],
    directory: Path,
    *,
    place: str,
    check: Callable[[], None],
    download: Callable[[RemoteObject, Path], None],
) -> tuple[int, int]:
    """Copy the objects of a channel below ``directory``, which exists and is empty.

    Args:
        objects: In any order.
        directory: Of the channel.
        place: The same directory as the job sees it, for messages.
        check: Is called between chunks; what it raises ends the copy.
        download: Brings a remote object to a path, now or later.

    Returns:
        How many files, and how many bytes.

    Raises:
        ClientFailure: A key is no path below the channel, clashes with another one, the disk is full.
        InternalFailure: The store's file is missing or damaged.
    """
    made: set[str] = set()
    files = size_bytes = 0
    for each in objects:
        if isinstance(each, InlineText):
            raise InternalFailure("the text of a manifest is for Pipe mode: it has no name to be a file of")
        is_folder = each.name.endswith("/") and each.size_bytes == 0  # as a console makes them
        *parents, _ = segments = each.name.removesuffix("/" if is_folder else "").split("/")
        _check_segments(segments, each.uri)
        _make_directory("/".join(segments if is_folder else parents), each.uri, directory, made, place=place)
        if is_folder:
            continue
        if isinstance(each, RemoteObject):
            download(each, directory / each.name)
        else:
            copy_object(each, directory / each.name, place=place, check=check)
        files += 1
        size_bytes += each.size_bytes
    return files, size_bytes


def copy_object(source: ObjectFile, target: Path, *, place: str, check: Callable[[], None]) -> None:
    """Copy one object to ``target``, which must not exist, and verify its digest.

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


@contextmanager
def new_file(target: Path, *, uri: str, place: str) -> Iterator[Callable[[bytes], None]]:
    """A function that writes into a file which did not exist.

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
        raise _clash(uri, place) from error
    except OSError as error:
        raise _key_error(error, uri, place) from error


def _check_segments(segments: list[str], uri: str) -> None:
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
        raise _clash(uri, place) from error
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
    return f"is {size_bytes} bytes long, more than {_SEGMENT_MAX_BYTES}" if size_bytes > _SEGMENT_MAX_BYTES else None


def _key_error(error: OSError, uri: str, place: str) -> InstanceFailure:
    if error.errno == errno.ENAMETOOLONG:
        return ClientFailure(f"object key is too long for a path below {place}: {uri[:200]}. Shorten it")
    return of_os_error(error, place=place)


def _clash(uri: str, place: str) -> ClientFailure:
    return ClientFailure(
        f"{uri} clashes with another object below {place}: one name cannot be both a file and a directory, nor two"
        " files. Rename one of them"
    )
