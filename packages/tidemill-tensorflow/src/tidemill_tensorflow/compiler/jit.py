"""Detect whether the script itself chose between plain and XLA; its choice is respected."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["is_chosen_by_script", "watch_keras"]

_ATTRIBUTE = "_XlaMustCompile"
_KERAS_STEP = "one_step_on_data"
_KERAS_TRAINERS = {"keras.src.trainers.trainer": "Trainer", "tf_keras.src.engine.training": "Model"}
_GIVEN = "_tidemill_jit_compile"


def is_chosen_by_script(concrete: Any) -> bool:
    """Return whether ``jit_compile`` was given for a function or, up the stack, for the Keras model that calls it.

    Keras 3 passes False on for "auto" on a CPU, so its own functions do not tell.
    """
    if _given_to_keras():
        return True
    attributes = concrete.function_def.attr
    if _ATTRIBUTE not in attributes:
        return False
    return bool(attributes[_ATTRIBUTE].b) or _KERAS_STEP not in concrete.graph.name


def watch_keras() -> None:
    """Note what scripts give to ``compile(jit_compile=...)``, of Keras 3 and tf_keras, imported now or later."""
    for name, trainer in _KERAS_TRAINERS.items():
        if name in sys.modules:
            _note_choices(getattr(sys.modules[name], trainer))
        else:
            sys.meta_path.insert(0, _TrainerFinder(name, trainer))


def _given_to_keras() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        model = frame.f_locals.get("self") if frame.f_code.co_name in ("fit", "train_on_batch") else None
        if getattr(model, _GIVEN, None) is not None:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _note_choices(trainer: Any) -> None:
    original = trainer.compile
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(self: Any, *arguments: Any, **named: Any) -> Any:
        given = signature.bind_partial(self, *arguments, **named).arguments.get("jit_compile")
        result = original(self, *arguments, **named)
        # Past Keras's own __setattr__, which would track it.
        object.__setattr__(self, _GIVEN, given if isinstance(given, bool) else None)
        return result

    trainer.compile = compile


class _TrainerFinder:
    """The first import finder until a module is looked for; then it removes itself."""

    def __init__(self, name: str, trainer: str) -> None:
        self._name = name
        self._trainer = trainer

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module's own spec, whose loader then patches the trainer in it."""
        if name != self._name:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _note_choices(getattr(module, self._trainer))

            loader.exec_module = exec_module
        return spec
