"""Bringing objects of the store to where a job finds them: copied, verified, and never outside their directory.

Keys are users' text. Each is checked segment by segment before it becomes a path, and a failure names its URI.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from tidemill.executors.base import ObjectFile
from tidemill.executors.shim.failures import ClientFailure, InstanceFailure, InternalFailure, of_os_error

__all__ = ["copy_channel", "copy_object", "is_segment"]

_CHUNK_BYTES = 1 << 20
_SEGMENT_MAX_BYTES = 255


def is_segment(name: str) -> bool:
    """Whether ``name`` can be the name of one file or directory."""
    return _segment_fault(name) is None


def copy_channel(
    objects: Iterable[ObjectFile], directory: Path, *, place: str, check: Callable[[], None]
) -> tuple[int, int]:
    """Copy the objects of a channel below ``directory``, which exists and is empty.

    Args:
        objects: In any order.
        directory: Of the channel.
        place: The same directory as the job sees it, for messages.
        check: Is called between chunks; what it raises ends the copy.

    Returns:
        How many files, and how many bytes.

    Raises:
        ClientFailure: A key is no path below the channel, clashes with another one, or the disk is full.
        InternalFailure: The store's file is missing or damaged.
    """
    made: set[str] = set()
    files = size_bytes = 0
    for each in objects:
        is_folder = each.name.endswith("/") and each.size_bytes == 0  # as a console makes them
        *parents, _ = segments = each.name.removesuffix("/" if is_folder else "").split("/")
        _check_segments(segments, each.uri)
        _make_directory("/".join(segments if is_folder else parents), each.uri, directory, made, place=place)
        if is_folder:
            continue
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
    with os.fdopen(source_fd, "rb", buffering=0) as reader:
        try:
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(fd, "wb", buffering=0) as writer:
                while chunk := reader.read(_CHUNK_BYTES):
                    check()
                    digest.update(chunk)
                    rest = memoryview(chunk)
                    while rest:
                        rest = rest[writer.write(rest) :]
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise _clash(source.uri, place) from error
        except OSError as error:
            raise _key_error(error, source.uri, place) from error
    if digest.hexdigest() != source.sha256:
        raise InternalFailure(f"{source.uri} is damaged in the object store: its content does not match its checksum")


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
