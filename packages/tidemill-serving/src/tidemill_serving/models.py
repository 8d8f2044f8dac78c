"""Find the models in a model directory, laid out as the archives of SageMaker's TensorFlow endpoints.

A version is a directory with an all-digit name that contains a SavedModel (``saved_model.pb``, or the same as text,
``saved_model.pbtxt``) or a TensorFlow Lite model (``model.tflite``); its parent directory is the model and names it. A
version directly in the model directory belongs to the model ``model``. Hidden directories and all other files are
ignored.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill_serving.errors import StartFailed

BARE_MODEL_NAME = "model"
GENERIC_MODEL_NAME = "generic_model"
DEFAULT_MODEL_VARIABLE = "SAGEMAKER_TFS_DEFAULT_MODEL_NAME"
SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")
TFLITE_FILE = "model.tflite"
MODEL_FILES = (*SAVED_MODEL_FILES, TFLITE_FILE)
_LISTED_ENTRIES = 20
_MAX_DEPTH = 16
MAX_VERSION = 2**63 - 1  # int64 in the protocol messages


@dataclass(frozen=True, slots=True, order=True)
class ModelVersion:
    """One version of a model.

    Attributes:
        name: Name of the model.
        version: Version number.
        path: Directory of this machine.
        url: Where the directory was downloaded from; empty if it is in its own place.
    """

    name: str
    version: int
    path: Path
    url: str = ""

    @property
    def place(self) -> str:
        """The URL or directory of the version, for log and metrics: the same each time that it is loaded."""
        return self.url or str(self.path)


def find_versions(model_dir: Path) -> tuple[ModelVersion, ...]:
    """Find every version below ``model_dir``, sorted by name and number.

    Raises:
        StartFailed: The directory cannot be read, contains no version, or contains the same version of a model twice.
    """
    if not model_dir.is_dir():
        raise StartFailed(f"no SavedModel bundles found! {model_dir} is not a directory")
    found: dict[tuple[str, int], ModelVersion] = {}
    for path in _version_directories(model_dir, depth=0):
        name = BARE_MODEL_NAME if path.parent == model_dir else path.parent.name
        version = ModelVersion(name, int(path.name), path)
        twin = found.setdefault((name, version.version), version)
        if twin is not version:
            raise StartFailed(
                f"{twin.path} and {path} are both version {version.version} of the model {name}: keep one of them"
            )
    if not found:
        expected = SAVED_MODEL_FILES[0]
        raise StartFailed(
            f"no SavedModel bundles found! {model_dir} holds {_listing(model_dir)}; expected"
            f" {model_dir}/<name>/<digits>/{expected} or {model_dir}/<digits>/{expected}, or {TFLITE_FILE} there"
        )
    return tuple(sorted(found.values()))


def find_versions_of(name: str, directory: Path, *, ignored: str) -> tuple[ModelVersion, ...]:
    """Find the versions of one model, regardless of its directory's name.

    Args:
        name: Name to give to the model.
        directory: Directory of the versions, or a parent of it.
        ignored: Name of a subdirectory to skip.

    Returns:
        Sorted by number; empty without versions. Of several models, the first by path.
    """
    if not directory.is_dir():
        return ()
    found = [path for path in _version_directories(directory, depth=0) if directory / ignored not in path.parents]
    first = min((path.parent for path in found), default=None)
    return tuple(sorted(ModelVersion(name, int(path.name), path) for path in found if path.parent == first))


def versions_in(name: str, base_path: Path) -> tuple[ModelVersion, ...]:
    """Find the versions directly below a directory, sorted by number; for duplicates, the first directory by name.

    Raises:
        OSError: The directory cannot be read.
    """
    found: dict[int, ModelVersion] = {}
    for entry in sorted(os.scandir(base_path), key=lambda item: item.name):
        if _is_version(base_path / entry.name):
            version = ModelVersion(name, int(entry.name), base_path / entry.name)
            found.setdefault(version.version, version)
    return tuple(sorted(found.values()))


def find_exported(model_dir: Path) -> tuple[ModelVersion, ...]:
    """Find the one model of a Python-based endpoint: below ``export/Servo``, else anywhere in the directory.

    Raises:
        StartFailed: No version is found.
    """
    exported = model_dir / "export" / "Servo"
    place = exported if exported.is_dir() else model_dir
    # If there is no version, the second search raises an error that lists what was found.
    return find_versions_of(GENERIC_MODEL_NAME, place, ignored="code") or find_versions(model_dir)


def default_model(versions: tuple[ModelVersion, ...], environment: Mapping[str, str]) -> str:
    """Return the name of the model for requests that name no model.

    Raises:
        StartFailed: The environment variable names a model that does not exist.
    """
    names = sorted({version.name for version in versions})
    wanted = environment.get(DEFAULT_MODEL_VARIABLE)
    if not wanted:
        return names[0]
    if wanted not in names:
        raise StartFailed(
            f"{DEFAULT_MODEL_VARIABLE} is {wanted!r}, but the models found are {', '.join(names)}: name one of them"
        )
    return wanted


def _version_directories(directory: Path, *, depth: int) -> Iterator[Path]:
    if depth > _MAX_DEPTH:
        return
    for entry in sorted(os.scandir(directory), key=lambda item: item.name):
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        path = directory / entry.name
        if _is_version(path):
            yield path
        else:
            yield from _version_directories(path, depth=depth + 1)


def _is_version(path: Path) -> bool:
    name = path.name
    is_number = name.isascii() and name.isdigit() and int(name) <= MAX_VERSION
    return is_number and any((path / file).is_file() for file in MODEL_FILES)


def _listing(directory: Path) -> str:
    """Return the first entries below the directory, for an error that shows what the archive contains."""
    entries: list[str] = []
    for parent, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted(files) + [name + "/" for name in directories]:
            entries.append(os.path.relpath(Path(parent) / name, directory) + ("/" if name.endswith("/") else ""))
            if len(entries) > _LISTED_ENTRIES:
                return ", ".join(entries[:_LISTED_ENTRIES]) + ", ..."
    return ", ".join(entries) or "nothing"
