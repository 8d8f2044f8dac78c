"""Read the serving graph of a SavedModel, and provide the directory from which TensorFlow loads it."""

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tidemill_serving.engine.variables import Variables
from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import StartFailed

_SERVE_TAG = "serve"
_FILE = "saved_model.pb"


def read_meta_graph(path: Path, *, wheel: Wheel) -> Any:
    """Read the MetaGraphDef tagged ``serve`` of the SavedModel in a directory.

    Raises:
        StartFailed: The file cannot be read, is damaged, or has no such graph.
    """
    file = path / _FILE
    saved = wheel.saved_model.SavedModel()
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StartFailed(f"{file} cannot be read: {error}") from error
    try:
        saved.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError lives in a module that depends on its implementation
        raise StartFailed(f"{file} is not a SavedModel: {error}") from error
    for graph in saved.meta_graphs:
        if set(graph.meta_info_def.tags) == {_SERVE_TAG}:
            return graph
    tags = [sorted(graph.meta_info_def.tags) for graph in saved.meta_graphs]
    raise StartFailed(f"{file} has no graph tagged ['{_SERVE_TAG}'], only {tags}: export the model for serving")


@contextlib.contextmanager
def loadable(path: Path, meta_graph: Any, *, wheel: Wheel) -> Generator[Path]:
    """Provide the directory to load: the SavedModel's, or a changed copy if variables are restored by the object graph.

    Args:
        meta_graph: Its MetaGraphDef, which this may change.
        wheel: The messages of TensorFlow.
    """
    if not Variables(meta_graph).restore_by_objects():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-model-") as name:
        saved = wheel.saved_model.SavedModel(saved_model_schema_version=1, meta_graphs=[meta_graph])
        (Path(name) / _FILE).write_bytes(saved.SerializeToString())
        for entry in os.scandir(path):
            if entry.name not in (_FILE, "fingerprint.pb"):  # which identifies the unchanged file
                (Path(name) / entry.name).symlink_to(Path(entry.path).resolve())
        yield Path(name)
