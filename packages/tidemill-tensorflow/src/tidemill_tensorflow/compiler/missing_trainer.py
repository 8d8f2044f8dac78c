"""Name the replacement of Hugging Face's ``TFTrainer`` when a script imports it from a library that lacks it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["watch_transformers"]

_NAMES = frozenset({"transformers.TFTrainer", "transformers.trainer_tf"})
"""What Python looks for if the package has no attribute ``TFTrainer``, and the module in which it once was."""


def watch_transformers() -> None:
    """Explain failing imports of ``TFTrainer`` from now on."""
    if not any(isinstance(finder, _MissingTrainerFinder) for finder in sys.meta_path):
        # Last, so that a library that still has it is left alone.
        sys.meta_path.append(_MissingTrainerFinder())


class _MissingTrainerFinder:
    """Finds nothing; raises the explanation for names that no other finder knows."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None.

        Raises:
            ImportError: The script imports ``TFTrainer``, which the installed library does not have.
        """
        if name not in _NAMES:
            return None
        version = getattr(sys.modules.get("transformers"), "__version__", "of this job")
        raise ImportError(
            f"transformers {version} has no TFTrainer: TensorFlow models are Keras models, so call"
            " model.compile(optimizer=...) without a loss and model.fit(...) on batches with 'labels' among the inputs,"
            " or write a loop with @tf.function; for several devices, build and compile the model inside"
            " strategy.scope()",
            name="transformers",
        )
