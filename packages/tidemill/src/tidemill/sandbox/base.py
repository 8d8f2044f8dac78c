"""The interface between the shim and its sandboxes: what a job sees (`View`), and what to start (`Launch`)."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from tidemill.core.instances import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """A directory that shows files without changing them: writes go to another directory.

    Attributes:
        directory: Contains `FILES`, the files to show, `WRITES`, the changes of the command, and `WORK`, used by the
            kernel; all on one file system.
        target: An existing directory below ``ml`` of the view, over which the overlay is mounted.
        parts: Names of directories in `FILES` to show as one directory, instead of `FILES` itself. Default: none.
    """

    FILES: ClassVar[str] = "files"
    WRITES: ClassVar[str] = "writes"
    WORK: ClassVar[str] = "work"

    directory: Path
    target: Path
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseMount:
    """A file system that a process outside the sandbox serves (FUSE).

    Attributes:
        target: An existing directory below ``ml`` of the view, over which the file system is mounted.
        socket: Descriptor of a Unix socket to the serving process, which gets the descriptor of the mount through it.
    """

    target: Path
    socket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The job's view of the machine. All paths are absolute paths outside the sandbox.

    Attributes:
        host_name: Name of the instance, e.g. ``algo-1``.
        hosts_file: Becomes ``/etc/hosts``.
        ml: Becomes ``/opt/ml``.
        home: Becomes the user's HOME; the real content of HOME is hidden.
        tmp: Contains the private temporary directories.
        hidden: Further files and directories to hide.
        read_only: Paths that stay visible although they are in a hidden directory.
        readable: Paths of the machine that would be hidden, and that the settings make readable.
        writable: Writable paths in addition to ``/opt/ml``, HOME and the temporary directories.
        overlays: Overlays below ``ml``; only sandboxes of the isolation ``mount`` support them.
        fuse: FUSE mounts below ``ml``; like overlays, only sandboxes of the isolation ``mount`` support them.
        mounted: Further writable directories, and their paths inside the job.
        covers: Paths mounted read-only over directories of ``/opt/ml``: outside path, path below ``/opt/ml``.
    """

    host_name: str
    hosts_file: Path
    ml: Path
    home: Path
    tmp: Path
    hidden: tuple[Path, ...] = ()
    read_only: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    fuse: tuple[FuseMount, ...] = ()
    mounted: tuple[tuple[Path, str], ...] = ()
    covers: tuple[tuple[Path, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A process to start: the process of the sandbox, which then starts the command.

    Attributes:
        variables: The whole environment of that process.
        descriptors: File descriptors that it must inherit; the starter closes its own copies afterwards.
        directory: Working directory.
        namespaces: Descriptors of namespaces that the process enters first, in order; the starter closes its own
            copies afterwards.
    """

    argv: tuple[str, ...]
    variables: Mapping[str, str]
    descriptors: tuple[int, ...] = ()
    directory: str = "/"
    namespaces: tuple[int, ...] = ()


class Sandbox(Protocol):
    """One way of isolating a command from the machine."""

    @property
    def name(self) -> str:
        """Name of the backend, e.g. ``bubblewrap``."""

    @property
    def isolation(self) -> Isolation: ...

    def base_dir(self, view: View) -> str:
        """Return the path of ``/opt/ml`` as the job sees it.

        Args:
            view: What the job may see.
        """

    def variables(self, view: View) -> dict[str, str]:
        """Return the variables with the job's directories: HOME, TMPDIR, and SAGEMAKER_BASE_DIR if necessary.

        Args:
            view: What the job may see.
        """

    def wrap(self, argv: Sequence[str], *, view: View, variables: Mapping[str, str]) -> Launch:
        """Return the process to start so that ``argv`` runs in the sandbox, with ``variables`` as whole environment.

        Args:
            argv: The command, as the job sees its paths.
            view: What the job may see.
            variables: All variables of the command.

        Returns:
            Command, variables and descriptors for the process.
        """


def secret_file(data: bytes) -> int:
    """Return an inheritable descriptor from which ``data`` can be read once; unlike arguments it is not public.

    Args:
        data: Bytes; the kernel keeps them in memory.
    """
    fd = os.memfd_create("tidemill", 0)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def existing(paths: Iterable[Path]) -> list[Path]:
    """Return the existing paths among ``paths``, each resolved once, in order. What cannot be reached is left out.

    Args:
        paths: Absolute paths.
    """
    return list(dict.fromkeys(path.resolve() for path in paths if _exists(path)))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # in a directory that this user may not enter
