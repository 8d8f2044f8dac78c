"""Load a native library into TensorFlow.

An installed wheel contains the library. A checkout compiles it on first use, into a cache named by a hash of the
sources.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import tensorflow as tf

from .compiling import CompileError, NativeSources, find_library


class NativeLibrary(NamedTuple):
    """A native library, or the reason why it is missing."""

    ops: Any
    """The module of its ops; None if the library is not available."""
    functions: Any
    """Its exported functions; None if the library is not available. A TensorFlow may lack what the ops need: then the
    library has functions but no ops."""
    source: str
    """`wheel` or `compiled`, or the reason why the library is not available."""


def load_library(sources: NativeSources) -> NativeLibrary:
    """Load the library of the installed wheel, or else the compiled library.

    Returns:
        The library, or the reason why it is not available.
    """
    try:
        path, source = find_library(sources)
        ops = tf.load_op_library(str(path))
        functions = ctypes.CDLL(str(path))
    except (CompileError, OSError, tf.errors.OpError) as error:
        return NativeLibrary(None, None, str(error))
    if functions[f"tidemill_{sources.name}_registration"]() != 0:
        return NativeLibrary(None, functions, f"TensorFlow {tf.__version__} lacks what {path} needs of its C API")
    return NativeLibrary(ops, functions, source)
