"""Read the serving graph of a SavedModel, and provide the directory from which TensorFlow loads it."""

import contextlib
import os
import re
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tidemill_serving.engine.variables import Variables
from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import StartFailed
from tidemill_serving.models import SAVED_MODEL_FILES

_BINARY, _TEXT = SAVED_MODEL_FILES
_MISSING_OPERATION = re.compile(r"(?:No OpKernel was registered to support Op|Op type not registered) '(\w+)'")
_VARIABLES = "variables"
_ONLY_OF_THE_FILE = (*SAVED_MODEL_FILES, "fingerprint.pb")  # which identifies the unchanged file


def read_meta_graph(path: Path, *, wheel: Wheel, tags: Sequence[str]) -> Any:
    """Read the MetaGraphDef with these tags, and no others, of the SavedModel in a directory.

    Raises:
        StartFailed: The file cannot be read, is damaged, or has no such graph.
    """
    file = path / _BINARY
    if not file.exists() and (path / _TEXT).exists():
        file = path / _TEXT
    saved = wheel.saved_model.SavedModel()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StartFailed(f"{file} cannot be read: {error}") from error
    try:
        if file.name == _TEXT:
            text_format.Parse(content, saved)
        else:
            saved.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError lives in a module that depends on its implementation
        raise StartFailed(f"{file} is not a SavedModel: {error}") from error
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == set(tags):
            return graph
    found = [sorted(graph.meta_info_def.tags) for graph in saved.meta_graphs]
    raise StartFailed(
        f"{file} has no graph tagged {sorted(tags)}, only {found}: export the model for serving, or name its tags by"
        " --saved-model-tags"
    )


def cannot_load(path: Path, error: Exception) -> StartFailed:
    """Return the error for a SavedModel that TensorFlow refuses, with advice if it lacks an operation of the model."""
    found = _MISSING_OPERATION.search(str(error))
    advice = found and (
        f"; this TensorFlow has no {found.group(1)}: serve the model by the version of TensorFlow that made it, or name"
        " the library of the operation in TIDEMILL_SERVING_OP_LIBRARIES"
    )
    return StartFailed(f"TensorFlow cannot load {path}: {error}{advice or ''}")


@contextlib.contextmanager
def loadable(path: Path, meta_graph: Any, *, wheel: Wheel, restore: bool = True) -> Generator[Path]:
    """Provide the directory to load: the SavedModel's, or a changed copy if variables are restored by the object graph.

    Args:
        meta_graph: Its MetaGraphDef, which this may change.
        wheel: The messages of TensorFlow.
        restore: Restore the variables. TensorFlow leaves them without values if their files are not in the directory.
    """
    is_changed = Variables(meta_graph).restore_by_objects()
    if restore and not is_changed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-model-") as name:
        replaced: tuple[str, ...] = () if restore else (_VARIABLES,)
        if is_changed:
            replaced += _ONLY_OF_THE_FILE
            saved = wheel.saved_model.SavedModel(saved_model_schema_version=1, meta_graphs=[meta_graph])
            (Path(name) / _BINARY).write_bytes(saved.SerializeToString())
        for entry in os.scandir(path):
            if entry.name not in replaced:
                (Path(name) / entry.name).symlink_to(Path(entry.path).resolve())
        yield Path(name)
