"""Copy shared source into the distributions that need it, because distributions must not import each other.

    python shared/copies.py                      # every distribution
    python shared/copies.py packages/tidemill-smp

A file or directory of this folder becomes part of the package ``_shared`` of each distribution in `COPIES`, under the
same name. The copies are ignored by git: edit the file here. `make` renews them on each run, and so does each wheel
build. Standard library only; Python 3.10 or newer.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

SHARED = Path(__file__).resolve().parent
PACKAGES = SHARED.parent / "packages"

COPIES = {
    "tidemill/src/tidemill": (
        "descendants.py",
        "http",
        "native_build/__init__.py",  # without the module that loads libraries into TensorFlow
        "native_build/compiling.py",
        "native_build/headers",
        "native_build/wheel.py",
        "trees.py",
    ),
    "tidemill-horovod/src/horovod/tensorflow": (
        "encryption",
        "native_build",
        "ranks",
        "tensorflow_types.py",
    ),
    "tidemill-pipemode/src/sagemaker_tensorflow": ("native_build",),
    "tidemill-serving/src/tidemill_serving": ("http", "native_build", "trees.py"),
    "tidemill-runtime/src/tidemill_runtime": ("descendants.py", "encryption", "native_build", "trees.py"),
    "tidemill-tensorflow/src/tidemill_tensorflow": ("native_build",),
    "tidemill-smp/src/smdistributed/modelparallel/tensorflow": (
        "encryption",
        "native_build",
        "ranks",
        "tensorflow_types.py",
    ),
}
"""The shared files and directories of each distribution, by the directory that holds its ``_shared``."""

_INIT = '"""Copies of files of the folder shared/ of the checkout, written by its copies.py. Do not edit."""\n'


def wanted(package: str) -> dict[Path, bytes]:
    """Return the content of each file in the ``_shared`` of a package, by path.

    Args:
        package: A key of `COPIES`.

    Raises:
        FileNotFoundError: If a name in `COPIES` is not in this folder.
    """
    target = PACKAGES / package / "_shared"
    files = {target / "__init__.py": _INIT.encode()}
    for name in COPIES[package]:
        source = SHARED / name
        found = [source] if source.is_file() else [path for path in source.rglob("*") if _is_source(path)]
        if not found:
            raise FileNotFoundError(f"{source} is named in COPIES of {__file__} and does not exist")
        files |= {target / path.relative_to(SHARED): path.read_bytes() for path in found}
    return files


def renew(package: str) -> None:
    """Make the ``_shared`` of a package equal to this folder. Files that are equal are not touched."""
    target = PACKAGES / package / "_shared"
    files = wanted(package)
    for path in [path for path in target.rglob("*") if _is_source(path) and path not in files]:
        path.unlink()
    for path, content in files.items():
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f".{path.name}.new")
            beside.write_bytes(content)
            beside.replace(path)  # atomic, because a test run in another terminal may import the file now
    for directory in [path for path in target.rglob("*") if path.is_dir()]:
        if not any(map(_is_source, directory.rglob("*"))):
            shutil.rmtree(directory, ignore_errors=True)  # also __pycache__, which Python writes again


def _is_source(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"


def main(arguments: list[str]) -> None:
    """Renew the copies of the distributions given as directories; of all if none is given."""
    distributions = {Path(argument).resolve().name for argument in arguments}
    for package in COPIES:
        if not distributions or package.partition("/")[0] in distributions:
            renew(package)


if __name__ == "__main__":
    main(sys.argv[1:])
