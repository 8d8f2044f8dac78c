"""What tidemill adds to TensorFlow: ``s3://`` paths, the training compiler, oneDNN's switches, and repairs of Keras.

Every environment of jobs imports `tidemill_tensorflow.startup`, which waits until the script imports TensorFlow. In a
script outside of tidemill, ``import tidemill_tensorflow; tidemill_tensorflow.activate()`` does the same at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemill_tensorflow.activation import activate

if TYPE_CHECKING:
    from tidemill_tensorflow.compiler import compile_training

__all__ = ["activate", "compile_training"]


def __getattr__(name: str) -> Any:
    if name == "compile_training":  # imports TensorFlow, which this package must not do at import
        from tidemill_tensorflow.compiler import compile_training

        return compile_training
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
