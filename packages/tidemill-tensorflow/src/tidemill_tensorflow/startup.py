"""Activate what tidemill adds to TensorFlow at the moment when a script imports it.

Every job environment imports this module at interpreter start (``tidemill.pth``), so it must cost next to nothing. It
does nothing unless ``TIDEMILL_TENSORFLOW`` is set, as it is for the scripts of jobs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

__all__ = ["TensorFlowFinder", "TensorFlowIoFinder"]


class TensorFlowFinder:
    """The first import finder until TensorFlow is looked for; then it removes itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return TensorFlow's own spec, whose loader activates what is added when it has run."""
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            self._activate_with(spec.loader)
        return spec

    def _activate_with(self, loader: Any) -> None:
        from tidemill_tensorflow import activation

        activation.before_import()
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            activation.after_import()

        loader.exec_module = exec_module


class TensorFlowIoFinder:
    """The last import finder: ``import tensorflow_io`` passes if the package is not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that says what works without the package."""
        if name != "tensorflow_io":
            return None
        from importlib.util import spec_from_file_location
        from pathlib import Path

        return spec_from_file_location(name, Path(__file__).with_name("tensorflow_io_import.py"))


if os.environ.get("TIDEMILL_TENSORFLOW") == "1":
    sys.meta_path.insert(0, TensorFlowFinder())
    sys.meta_path.append(TensorFlowIoFinder())
