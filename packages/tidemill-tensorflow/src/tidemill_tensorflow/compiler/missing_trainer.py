"""Explain how to replace Hugging Face's ``TFTrainer`` when a script imports it from a release without it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["watch_transformers"]

_NAMES = frozenset({"transformers.TFTrainer", "transformers.trainer_tf"})
"""Module names that Python searches for if the package has no attribute ``TFTrainer``: itself, and its old module."""


def watch_transformers() -> None:
    """Explain failing imports of ``TFTrainer`` from now on."""
    if not any(isinstance(finder, _MissingTrainerFinder) for finder in sys.meta_path):
        # The last finder, so that a release that still has TFTrainer works.
        sys.meta_path.append(_MissingTrainerFinder())


class _MissingTrainerFinder:
    """Last import finder, which raises the explanation if no other finder has found the name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return None for all other names.

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
