"""Additions to TensorFlow: ``s3://`` paths, the training compiler, oneDNN's switches, and repairs of Keras.

Every job environment imports `tidemill_tensorflow.startup`, which activates them when the script imports TensorFlow.
A script outside of tidemill activates them with ``import tidemill_tensorflow; tidemill_tensorflow.activate()``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill_tensorflow.activation import activate

if TYPE_CHECKING:
    from tidemill_tensorflow.compiler import compile_training

__all__ = ["activate", "compile_training"]


def __getattr__(name: str) -> Any:
    if name == "compile_training":  # imported on first use, because this package must not import TensorFlow at import
        from tidemill_tensorflow.compiler import compile_training

        return compile_training
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
