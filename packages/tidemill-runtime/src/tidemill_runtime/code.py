"""The user's code: puts it in place, and determines the kind of its entry point."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill_runtime._shared.trees import walk
from tidemill_runtime.archive import ArchiveLimits, extract
from tidemill_runtime.errors import ConfigurationError, EntryPointNotFound, InvalidArchive

if TYPE_CHECKING:
    from tidemill_runtime.layout import Layout

PACKAGE = "package"
SCRIPT = "script"
COMMAND = "command"

CODE_LIMITS = ArchiveLimits(max_bytes=4 << 30, max_entries=200_000)
MAX_LISTED = 20


@dataclass(frozen=True)
class EntryPoint:
    """The entry point to run.

    Attributes:
        name: File below the code directory, as given.
        kind: ``package`` (there is a setup.py), ``script`` (a Python file) or ``command`` (any other executable).
        directory: The code directory.
    """

    name: str
    kind: str
    directory: Path


def put_in_place(layout: Layout, *, submit_directory: str) -> None:
    """Fill the code directory if it is empty.

    Args:
        layout: Paths of the job.
        submit_directory: As the client gave it. If the platform fetched the submitted archive, that archive is used;
            otherwise this is a local directory, archive or file.

    Raises:
        ConfigurationError: There is no such code.
        InvalidArchive: The archive is refused; the message names its URI.
    """
    layout.code.mkdir(parents=True, exist_ok=True)
    if any(layout.code.iterdir()):
        return
    if layout.submitted_code.is_file():
        _unpack(layout.submitted_code, layout.code, shown=submit_directory)
        return
    source = Path(submit_directory[7:] if submit_directory.startswith("file://") else submit_directory)
    if source == layout.code or not submit_directory:
        return
    if "://" in submit_directory and not submit_directory.startswith("file://"):
        raise ConfigurationError(
            f"the code {submit_directory!r} was not fetched: the platform puts it into {layout.submitted_code}"
        )
    _copy_local(source, layout.code)


def find_entry_point(directory: Path, name: str) -> EntryPoint:
    """Check that the entry point is a file of the submitted code, and determine its kind.

    Raises:
        EntryPointNotFound: There is no such file; the message lists the existing files.
        ConfigurationError: It is a file that cannot run, such as a notebook.
    """
    problem = _problem(directory, name)
    if problem:
        raise EntryPointNotFound(
            f"entry point {_shown(name)} not found in sourcedir: {problem}. What is there: {_listing(directory)}"
        )
    _check_program(directory / name)
    if name.endswith(".sh"):
        return EntryPoint(name, COMMAND, directory)
    if (directory / "setup.py").is_file():
        return EntryPoint(name, PACKAGE, directory)
    return EntryPoint(name, SCRIPT if name.endswith(".py") else COMMAND, directory)


def _check_program(path: Path) -> None:
    """Raise ConfigurationError for a file that a shell would run line by line, with errors that do not help."""
    if path.suffix == ".ipynb":
        raise ConfigurationError(
            f"the entry point {_shown(path.name)} is a notebook, which Python cannot run: write its code to a script"
            f" with `jupyter nbconvert --to script {path.name}`, and make that the entry point"
        )
    if path.suffix == ".py":
        return
    with path.open("rb") as file:
        first = file.readline(1024)
    if first.endswith(b"\r\n") and not first.startswith(b"\x7fELF"):
        raise ConfigurationError(
            f"the lines of the entry point {_shown(path.name)} end with CR LF, as on Windows, and a shell takes the CR"
            " for a part of each command: convert the file (dos2unix, or `sed -i 's/\\r$//'`), and keep it so with"
            " the line `*.sh text eol=lf` in .gitattributes"
        )


def _unpack(archive: Path, directory: Path, *, shown: str) -> None:
    try:
        extract(archive, directory, limits=CODE_LIMITS)
    except InvalidArchive as error:
        raise InvalidArchive(f"{shown}: {error}") from error


def _copy_local(source: Path, directory: Path) -> None:
    if source.is_dir():
        _copy_directory(source, directory)
    elif not source.is_file():
        raise ConfigurationError(
            f"no code at {str(source)!r}: sagemaker_submit_directory names neither file nor directory"
        )
    elif source.name.endswith((".tar.gz", ".tgz")):
        _unpack(source, directory, shown=str(source))
    else:
        shutil.copy2(source, directory / source.name)


def _copy_directory(source: Path, directory: Path) -> None:
    """Copy the content of a directory into an empty one."""
    directories = [""]
    for entry in walk(source.resolve()):
        if entry.is_directory:
            (directory / entry.path).mkdir()
            directories.append(entry.path)
        else:
            shutil.copy2(source / entry.path, directory / entry.path, follow_symlinks=False)
    for path in reversed(directories):  # at the end: it may take away the permission to write
        shutil.copystat(source / path, directory / path)


def _problem(directory: Path, name: str) -> str:
    """Return what is wrong with the name of an entry point; empty if the name is valid."""
    if not name:
        return "no name was given (hyperparameter sagemaker_program or variable SAGEMAKER_PROGRAM)"
    if not name.isprintable() or name[0] in "-/" or {".", ".."} & set(name.split("/")):
        return "a name has no control characters, does not begin with - or /, and has no . or .. segment"
    try:
        mode = (directory / name).stat().st_mode
    except (OSError, ValueError):
        return "there is no such file"
    if stat.S_ISDIR(mode):
        return "it is a directory"
    if not stat.S_ISREG(mode):
        return "it is not a regular file"
    inside = Path(os.path.realpath(directory)) in Path(os.path.realpath(directory / name)).parents
    return "" if inside else "it is a link that leaves the code"


def _listing(directory: Path) -> str:
    entries = sorted(os.scandir(directory), key=lambda entry: entry.name) if directory.is_dir() else []
    names = [_shown(entry.name)[1:-1] + ("/" if entry.is_dir() else "") for entry in entries]
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return (", ".join(names[:MAX_LISTED]) or "nothing") + more


def _shown(name: str) -> str:
    text = repr(name)
    return text if len(text) <= 100 else text[:97] + "...'"
