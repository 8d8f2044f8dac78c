"""Load the model of a directory by the engine for its format: a SavedModel, or a TensorFlow Lite model."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tidemill_serving.engine.base import Engine, Formats, LoadedModel
from tidemill_serving.engine.tflite import TfliteLoader, TfliteModel

_METHODS = tuple(f"tensorflow/serving/{verb}" for verb in ("predict", "classify", "regress"))


class FormatEngine:
    """An engine that also loads TensorFlow Lite models.

    Args:
        engine: Loads SavedModels.
        formats: Which model of a directory is loaded.
        threads: Threads inside an operation of a TensorFlow Lite model.
    """

    def __init__(self, engine: Engine, formats: Formats, *, threads: int) -> None:
        self._engine = engine
        self._formats = formats
        self._threads = threads

    @property
    def name(self) -> str:
        return self._engine.name

    @property
    def description(self) -> str:
        return self._engine.description

    @property
    def has_narrow_sessions(self) -> bool:
        return self._engine.has_narrow_sessions

    def is_narrow(self, model: LoadedModel) -> bool:
        """Return as `Engine.is_narrow`; True for TensorFlow Lite, since the threads of interpreters are fixed."""
        return isinstance(model, TfliteModel) or self._engine.is_narrow(model)

    def load_operations(self, library: Path) -> None:
        self._engine.load_operations(library)

    def release_memory(self) -> None:
        self._engine.release_memory()

    def shares_variables(self, model: LoadedModel) -> bool:
        return self._engine.shares_variables(model)

    def load(self, path: Path, *, twin_of: LoadedModel | None = None) -> LoadedModel:
        file = self._formats.tflite_file(path)
        model = self._engine.load(path, twin_of=twin_of) if file is None else self._tflite.load(file)
        return _with_checked_methods(model) if self._formats.checks_method_names else model

    @cached_property
    def _tflite(self) -> TfliteLoader:
        return TfliteLoader(interpreters=self._formats.tflite_interpreters, threads=self._threads)


def _with_checked_methods(model: Any) -> LoadedModel:
    """Let a model serve its signatures only by the methods that their method names say.

    Predict takes those of all three methods, as in TF Serving.
    """
    wrong = {key: each.method_name for key, each in model.signatures.items() if each.method_name not in _METHODS}
    expected = "Expected prediction signature method_name to be one of {" + ", ".join(_METHODS) + "}"
    model.unusable = {**model.unusable, **{key: f"{expected}. Was: {name}" for key, name in wrong.items()}}
    model.signatures = {
        key: replace(each, checks_method=True) for key, each in model.signatures.items() if key not in wrong
    }
    checked: LoadedModel = model
    return checked
