"""Activate tidemill's additions when a script imports TensorFlow.

Every job environment imports this module at interpreter start (``tidemill.pth``), so its import must be cheap. It has
an effect only if ``TIDEMILL_TENSORFLOW`` is 1, which is the case in the scripts of jobs.
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


class TensorFlowFinder:
    """First import finder, which removes itself when TensorFlow is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return TensorFlow's own spec, with a loader that activates the additions after the import."""
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
    """Last import finder, which lets ``import tensorflow_io`` succeed if the package is not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of `tensorflow_io_import`, which takes the place of the missing package."""
        if name != "tensorflow_io":
            return None
        from importlib.util import spec_from_file_location
        from pathlib import Path

        return spec_from_file_location(name, Path(__file__).with_name("tensorflow_io_import.py"))


if os.environ.get("TIDEMILL_TENSORFLOW") == "1":
    sys.meta_path.insert(0, TensorFlowFinder())
    sys.meta_path.append(TensorFlowIoFinder())
