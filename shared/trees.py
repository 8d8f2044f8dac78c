"""Walk and remove directory trees that user code made, of any depth. Standard library only; Python 3.7 or newer.

Python's own functions fail for deep trees. `shutil.rmtree`, `Path.rglob` and, before Python 3.12, `os.walk` call
themselves for each level, so 1,500 nested directories end in a RecursionError. Paths have at most 4,096 bytes, and a
descriptor per level soon exceeds the limit of open files. The functions here use a stack of names, and open each
directory relative to its parent. Only the upper levels stay open; the way back up to the others is ``..``, and device
and inode show that it leads to the directory it came from. No link is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OPEN_LEVELS = 32
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry:
    """A file, directory or link of a tree. Valid until the walk continues.

    Attributes:
        directory: Descriptor of the directory that contains the entry.
        is_directory: Whether the entry is a directory; false for links to directories.
    """

    __slots__ = ("_levels", "directory", "is_directory", "name")

    def __init__(self, levels: list[_Level], name: str, *, is_directory: bool) -> None:
        self._levels = levels
        self.directory = levels[-1].fd
        self.name = name
        self.is_directory = is_directory

    @property
    def path(self) -> str:
        """Path below the top of the tree. It may be too long for the kernel: open the name in the directory instead."""
        return "/".join([*(level.name for level in self._levels[1:]), self.name])

    def status(self) -> os.stat_result:
        """Return the status of the entry itself, also of a link.

        Raises:
            OSError: The entry does not exist any more.
        """
        return os.stat(self.name, dir_fd=self.directory, follow_symlinks=False)


def walk(
    top: int | str | os.PathLike[str],
    *,
    contents_first: bool = False,
    max_path_bytes: int | None = None,
    left_out: Callable[[Entry], None] = lambda entry: None,
    on_error: Callable[[OSError], None] | None = None,
) -> Iterator[Entry]:
    """Yield everything below a directory, sorted by name in each directory.

    Args:
        top: The directory, as a descriptor or path. A link at the end of the path is not followed.
        contents_first: Yield a directory after its contents, so that it may be removed. Default: before.
        max_path_bytes: Longest path below ``top``, in bytes. Default: no limit.
        left_out: Called with each entry that has a longer path. Nothing below such a directory is visited.
        on_error: Called with the error of a directory that cannot be read; the walk then continues with the others.
            Default: raise it.

    Raises:
        OSError: ``top`` cannot be read; without ``on_error``, also any directory.
    """
    levels = [_Level(_opened(".", top) if isinstance(top, int) else os.open(top, _DIRECTORY))]
    try:
        yield from _below(levels, contents_first, max_path_bytes, left_out, on_error or _raise)
    finally:
        _close(levels)


def remove_tree(path: Path) -> None:
    """Remove a directory with everything in it, or a file or link. Does nothing if ``path`` does not exist.

    Directories without permissions are made accessible. What cannot be removed does not keep the rest from removal.

    Raises:
        OSError: The first error, if something could not be removed.
    """
    try:
        top = _opened_for_removal(str(path), None)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        path.unlink()
        return
    errors: list[OSError] = []
    levels = [_Level(top)]
    try:
        for entry in _below(levels, True, None, lambda entry: None, errors.append, opened=_opened_for_removal):
            try:
                (os.rmdir if entry.is_directory else os.unlink)(entry.name, dir_fd=entry.directory)
            except FileNotFoundError:
                pass
            except OSError as error:
                errors.append(error)
        path.rmdir()
    except FileNotFoundError:  # removed by another process
        pass
    except OSError as error:
        errors.append(error)
    finally:
        _close(levels)
    if errors:
        raise errors[0]


class _Level:
    """A directory on the way from the top to the current entry.

    Attributes:
        fd: Its descriptor; -1 while it is closed.
        name: Its name in its parent.
        path_bytes: Length of its path below the top, with a slash; 0 for the top.
        left: Names that are still to be visited, the next one last, and whether they are directories.
    """

    __slots__ = ("fd", "identity", "left", "name", "path_bytes")

    def __init__(self, fd: int, name: str = "", path_bytes: int = 0) -> None:
        self.fd = fd
        self.name = name
        self.path_bytes = path_bytes
        try:
            self.identity = _identity(fd)
            with os.scandir(fd) as found:
                self.left = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        except BaseException:
            os.close(fd)
            raise
        self.left.sort(reverse=True)


def _opened(name: str, directory: int | None) -> int:
    return os.open(name, _DIRECTORY, dir_fd=directory)


def _below(
    levels: list[_Level],
    contents_first: bool,
    max_path_bytes: int | None,
    left_out: Callable[[Entry], None],
    on_error: Callable[[OSError], None],
    *,
    opened: Callable[[str, int | None], int] = _opened,
) -> Iterator[Entry]:
    """Yield what is below the only level of ``levels``, which the caller closes."""
    while levels:
        level = levels[-1]
        if not level.left:
            finished = _leave(levels, on_error)
            if contents_first and finished is not None:
                yield Entry(levels, finished, is_directory=True)
            continue
        name, is_directory = level.left.pop()
        entry = Entry(levels, name, is_directory=is_directory)
        path_bytes = level.path_bytes + len(os.fsencode(name))
        if max_path_bytes is not None and path_bytes > max_path_bytes:
            left_out(entry)
            continue
        if not (is_directory and contents_first):
            yield entry
        if is_directory and not _enter(levels, name, path_bytes + 1, on_error, opened) and contents_first:
            yield entry


def _enter(
    levels: list[_Level],
    name: str,
    path_bytes: int,
    on_error: Callable[[OSError], None],
    opened: Callable[[str, int | None], int],
) -> bool:
    """Go down into a directory of the last level, and return whether it could be read."""
    level = levels[-1]
    try:
        levels.append(_Level(opened(name, level.fd), name, path_bytes))
    except OSError as error:
        on_error(error)
        return False
    if len(levels) > _OPEN_LEVELS:
        os.close(level.fd)
        level.fd = -1
    return True


def _leave(levels: list[_Level], on_error: Callable[[OSError], None]) -> str | None:
    """Go up to the parent of the last level, and return the name of that level in it; None for the top.

    If the directory was moved meanwhile, go up to the last level that is still open.
    """
    level = levels.pop()
    if not levels:
        os.close(level.fd)
        return None
    try:
        if levels[-1].fd < 0:
            levels[-1].fd = _parent_of(level.fd, levels[-1].identity)
        return level.name
    except OSError as error:
        on_error(error)
        while levels[-1].fd < 0:
            levels.pop()
        return None
    finally:
        os.close(level.fd)


def _parent_of(fd: int, identity: tuple[int, int]) -> int:
    """Open the parent of a directory, which must be the one with ``identity``.

    Raises:
        OSError: The directory was moved to another parent.
    """
    parent = _opened("..", fd)
    if _identity(parent) != identity:
        os.close(parent)
        raise OSError(errno.ESTALE, "a directory was moved while its content was read")
    return parent


def _opened_for_removal(name: str, directory: int | None) -> int:
    """Open a directory and make it writable, because only then its entries can be removed."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=directory)
    except PermissionError:
        # The mode of a name cannot be changed without following links, but that of a descriptor can.
        found = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.chmod(f"/proc/self/fd/{found}", stat.S_IRWXU)  # noqa: PTH101 - not a path of a file
            return os.open(name, _DIRECTORY, dir_fd=directory)
        finally:
            os.close(found)
    if os.fstat(fd).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(OSError):  # of another user: removing the entries shows whether it matters
            os.fchmod(fd, stat.S_IRWXU)
    return fd


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _close(levels: list[_Level]) -> None:
    for level in levels:
        if level.fd >= 0:
            os.close(level.fd)
    levels.clear()


def _raise(error: OSError) -> None:
    raise error
