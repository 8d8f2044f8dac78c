"""Determine whether a path on this machine is a model that can be served, and of which kind."""

import os
import tarfile
import zipfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tidemill.cli.failures import CommandFailed

_SAVED_MODELS = ("saved_model.pb", "saved_model.pbtxt")
_TFLITE = "model.tflite"
_TFLITE_MAGIC = b"TFL3"  # from the fifth byte on
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_EXPECTED = "expected a SavedModel (a directory with saved_model.pb), a .keras, .h5 or .tflite file, or a model.tar.gz"
_SERVABLE = (".keras", ".h5", ".hdf5", ".tflite", ".tar.gz", ".tgz")
_LISTED = 8
_MAX_DEPTH = 16


class ModelKind(StrEnum):
    """Format of a model on disk."""

    VERSION = "a version of a model"
    UNPACKED = "an unpacked model archive"
    ARCHIVE = "a model archive"
    KERAS = "a Keras file"
    TFLITE = "a TensorFlow Lite model"


@dataclass(frozen=True, slots=True)
class ModelPath:
    """A model on this machine.

    Attributes:
        path: Absolute path without symbolic links.
        kind: Format of the model.
    """

    path: Path
    kind: ModelKind

    @classmethod
    def find(cls, path: Path) -> "ModelPath":
        """Inspect a path.

        Raises:
            CommandFailed: The path does not exist or is not a model.
        """
        if not path.exists():
            raise CommandFailed(f"{path}: there is no such file or directory; {_EXPECTED}")
        real = path.resolve()
        return cls(real, _kind_of_directory(real) if real.is_dir() else _kind_of_file(real))

    @property
    def version(self) -> str:
        """Version number to serve a directory as: the directory's name if that is a number, otherwise 1."""
        name = self.path.name
        return name if name.isascii() and name.isdigit() else "1"


def _kind_of_directory(path: Path) -> ModelKind:
    if any((path / name).is_file() for name in (*_SAVED_MODELS, _TFLITE)):
        return ModelKind.VERSION
    for directory, names, files in os.walk(path, followlinks=True):
        place = Path(directory)
        names[:] = [name for name in names if not name.startswith(".")]
        if len(place.relative_to(path).parts) >= _MAX_DEPTH:
            names.clear()
        if set(files).isdisjoint((*_SAVED_MODELS, _TFLITE)):
            continue
        if place.name.isascii() and place.name.isdigit():
            return ModelKind.UNPACKED
        if not set(files).isdisjoint(_SAVED_MODELS):
            raise CommandFailed(f"{path} is no SavedModel, but {place} is: serve that")
    entries = sorted(entry.name for entry in path.iterdir())
    hint = next((f"; serve {path / name}" for name in entries if name.endswith(_SERVABLE)), "")
    shown = ", ".join(entries[:_LISTED]) + (", ..." if len(entries) > _LISTED else "")
    raise CommandFailed(f"{path} is no model: it holds {shown or 'nothing'}; {_EXPECTED}{hint}")


def _kind_of_file(path: Path) -> ModelKind:
    with path.open("rb") as file:
        head = file.read(len(_HDF5_MAGIC))
    if zipfile.is_zipfile(path) and path.suffix == ".keras":
        return ModelKind.KERAS
    if head == _HDF5_MAGIC:
        return ModelKind.KERAS
    if head[4:] == _TFLITE_MAGIC:
        return ModelKind.TFLITE
    if tarfile.is_tarfile(path):
        return ModelKind.ARCHIVE
    if path.name in _SAVED_MODELS:
        raise CommandFailed(f"{path} is a part of a SavedModel: serve its directory, {path.parent}")
    raise CommandFailed(f"{path} is no model; {_EXPECTED}")
