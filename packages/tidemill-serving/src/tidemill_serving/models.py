"""Which models lie in a model directory: the archive layout of SageMaker's TensorFlow endpoints.

A version is a directory whose name is all digits and which holds ``saved_model.pb``; its parent is the model, and the
parent's base name the model's name. A version right in the model directory belongs to the model ``model``. Hidden
directories and everything else are ignored.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemill_serving.errors import StartFailed

__all__ = ["BARE_MODEL_NAME", "DEFAULT_MODEL_VARIABLE", "ModelVersion", "default_model", "find_versions"]

BARE_MODEL_NAME = "model"
DEFAULT_MODEL_VARIABLE = "SAGEMAKER_TFS_DEFAULT_MODEL_NAME"
SAVED_MODEL_FILE = "saved_model.pb"
_LISTED_ENTRIES = 20
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True, order=True)
class ModelVersion:
    """One SavedModel: a model's name, its version number and where it lies."""

    name: str
    version: int
    path: Path


def find_versions(model_dir: Path) -> tuple[ModelVersion, ...]:
    """Find every version below ``model_dir``, sorted by name and number.

    Raises:
        StartFailed: The directory cannot be read, there is no version in it, or two directories are the same version
            of the same model.
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
        raise StartFailed(
            f"no SavedModel bundles found! {model_dir} holds {_listing(model_dir)}; expected"
            f" {model_dir}/<name>/<digits>/{SAVED_MODEL_FILE} or {model_dir}/<digits>/{SAVED_MODEL_FILE}"
        )
    return tuple(sorted(found.values()))


def default_model(versions: tuple[ModelVersion, ...], environment: Mapping[str, str]) -> str:
    """The model that answers requests which name none.

    Raises:
        StartFailed: The variable names a model that is not there.
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
        if entry.name.isascii() and entry.name.isdigit() and (path / SAVED_MODEL_FILE).is_file():
            yield path
        else:
            yield from _version_directories(path, depth=depth + 1)


def _listing(directory: Path) -> str:
    """The first entries below the directory, for a message that shows what was in the archive instead."""
    entries: list[str] = []
    for parent, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted(files) + [name + "/" for name in directories]:
            entries.append(os.path.relpath(Path(parent) / name, directory) + ("/" if name.endswith("/") else ""))
            if len(entries) > _LISTED_ENTRIES:
                return ", ".join(entries[:_LISTED_ENTRIES]) + ", ..."
    return ", ".join(entries) or "nothing"
