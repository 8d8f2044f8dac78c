"""Pack the user's code (entry point, source directory and dependencies) into one archive.

Members are sorted and have no times, so the same code produces the same bytes.
"""

import gzip
import io
import re
import shlex
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tidemill.sdk.git import Clone

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_LEFT_OUT = frozenset({"__pycache__", ".git"})


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The code of a job or endpoint.

    Attributes:
        entry_point: Name of the script inside the archive.
        source_dir: Directory whose content becomes the archive's root; None packs only the script.
        script: Path of the script if there is no source directory.
        dependencies: Files and directories to pack next to the script under their own names.
        remote: S3 URI of an archive that is already uploaded; then nothing is packed.
        clone: Holds the files if they come from a Git repository.
    """

    entry_point: str
    source_dir: Path | None = None
    script: Path | None = None
    dependencies: tuple[Path, ...] = ()
    remote: str | None = None
    clone: Clone | None = None

    @classmethod
    def find(
        cls,
        entry_point: str,
        source_dir: str | None = None,
        dependencies: Sequence[str] = (),
        git_config: Mapping[str, Any] | None = None,
    ) -> "SourceCode":
        """Return the code at these paths, after checking that they exist.

        Args:
            entry_point: The script: a path relative to ``source_dir``, or any path without ``source_dir``.
            source_dir: Local directory, or S3 URI of a packed one.
            dependencies: Further files and directories.
            git_config: A Git repository, which is cloned now; the other paths are relative to its root. See `Clone`.

        Raises:
            ValueError: A path does not exist, or ``dependencies`` are combined with a ``source_dir`` on S3.
        """
        if git_config:
            clone = Clone(git_config)
            if source_dir is not None:
                source_dir = clone.locate(source_dir, argument="source_dir")
            else:
                entry_point = clone.locate(entry_point, argument="entry_point")
            paths_in_clone = [clone.locate(path, argument="dependencies") for path in dependencies]
            return replace(cls.find(entry_point, source_dir, paths_in_clone), clone=clone)
        if source_dir is not None and source_dir.startswith("s3://"):
            if dependencies:
                raise ValueError(
                    f"source_dir={source_dir!r} is an archive on S3 and cannot take"
                    f" dependencies={list(dependencies)!r}; put them into the archive, or give a local source_dir"
                )
            return cls(entry_point, remote=source_dir)
        paths = tuple(Path(path.removeprefix("file://")).expanduser() for path in dependencies)
        for path in paths:
            if not path.exists():
                raise ValueError(f"dependencies: {path.absolute()} does not exist")
        if source_dir is None:
            script = Path(entry_point.removeprefix("file://")).expanduser()
            if not script.is_file():
                raise ValueError(f"entry_point={entry_point!r}: no file {script.absolute()}")
            _refuse_notebook(entry_point)
            return cls(script.name, script=script, dependencies=paths)
        directory = Path(source_dir.removeprefix("file://")).expanduser()
        if not directory.is_dir():
            raise ValueError(f"source_dir={source_dir!r}: no directory {directory.absolute()}")
        if Path(entry_point).is_absolute() or not (directory / entry_point).is_file():
            raise ValueError(
                f"entry_point={entry_point!r} is not a file of source_dir={source_dir!r};"
                " expected a path relative to it"
            )
        _refuse_notebook(entry_point)
        return cls(entry_point, source_dir=directory, dependencies=paths)

    def beside(self, module: str) -> Path | None:
        """Return the file or directory of a module that lies beside the script but is not packed; None without one.

        Args:
            module: Name as an import has it, e.g. ``helpers.data``.
        """
        if self.script is None:
            return None
        name = module.partition(".")[0]
        found = (self.script.parent / f"{name}.py", self.script.parent / name)
        return next((path for path in found if path.exists() and path not in self.dependencies), None)

    def missing_module_hint(self, reason: str) -> str:
        """Return a line for a script that imports a file beside it which was not submitted; else an empty text.

        Args:
            reason: FailureReason of the job.
        """
        missing = _MISSING_MODULE.search(reason)
        path = self.beside(missing[1]) if missing else None
        if path is None:
            return ""
        return (
            f"\n{path} was not submitted: only the entry point is, unless source_dir names the directory with both:"
            f" TensorFlow(entry_point={self.entry_point!r}, source_dir={str(path.parent)!r}, ...), or"
            f" `tidemill train --source-dir {shlex.quote(str(path.parent))} {self.entry_point}`"
        )

    @property
    def local_script(self) -> Path | None:
        """The script's file; None if the code is an archive on S3."""
        return self.script if self.source_dir is None else self.source_dir / self.entry_point

    def pack(self, *, dependencies_below: str = "") -> bytes:
        """Return the ``tar.gz``.

        Args:
            dependencies_below: Prefix of the dependencies' names, e.g. ``lib/``. Default: next to the script.

        Raises:
            ValueError: Two files would have the same name in the archive.
        """
        seen: set[str] = set()
        buffer = io.BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
            for name, path in self._members(dependencies_below):
                if name in seen:
                    raise ValueError(
                        f"{path} and another file would both become {name!r} in the job; rename one of them"
                    )
                seen.add(name)
                _add(tar, name, path)
        return buffer.getvalue()

    def _members(self, dependencies_below: str) -> Iterator[tuple[str, Path]]:
        if self.source_dir is not None:
            yield from _walk(self.source_dir, "")
        if self.script is not None:
            yield self.script.name, self.script
        for path in self.dependencies:
            name = f"{dependencies_below}{path.resolve().name}"
            if path.is_dir():
                yield name, path
                yield from _walk(path, f"{name}/")
            else:
                yield name, path


def _refuse_notebook(entry_point: str) -> None:
    if entry_point.endswith(".ipynb"):
        raise ValueError(
            f"entry_point={entry_point!r} is a notebook, which Python cannot run: write its code to a script with"
            f" `jupyter nbconvert --to script {entry_point}`, and make that the entry point"
        )


def _walk(directory: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    """Yield every member below a directory, directories before their content; follow links, as AWS's clients do."""
    for path in sorted(directory.iterdir()):
        if path.name in _LEFT_OUT:
            continue
        if path.is_dir():
            yield f"{prefix}{path.name}", path
            yield from _walk(path, f"{prefix}{path.name}/")
        elif path.is_file():
            yield f"{prefix}{path.name}", path
        else:
            raise ValueError(
                f"{path} is neither a file nor a directory and cannot be packed; remove it from the source"
            )


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    member = tarfile.TarInfo(name)
    executable = path.stat().st_mode & 0o100
    member.mode = 0o755 if path.is_dir() or executable else 0o644
    if path.is_dir():
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
        return
    with path.open("rb") as content:
        member.size = path.stat().st_size
        tar.addfile(member, content)
