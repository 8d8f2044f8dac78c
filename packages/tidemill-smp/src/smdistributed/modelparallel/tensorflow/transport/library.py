"""Find the native transport, or make it, and load it into TensorFlow.

An installed wheel brings the library. A checkout compiles it when it is first needed, into a cache named after the
sources; where that fails, tensors travel by Python.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.transport.compiling import (
    LIBRARY_NAME,
    CompileError,
    cached_library,
    compile_library,
)

__all__ = ["NativeLibrary", "load_native_library"]


class NativeLibrary(NamedTuple):
    """The result of looking for the native transport."""

    ops: Any
    """The module of its ops, or None."""
    functions: Any
    """Its other functions, or None."""
    source: str
    """Where it comes from, or why it is not to be had."""


@lru_cache(maxsize=1)
def load_native_library() -> NativeLibrary:
    """Load the native transport once per process."""
    try:
        path, source = _find()
        ops = tf.load_op_library(str(path))
        functions = ctypes.CDLL(str(path))
    except (CompileError, OSError, tf.errors.OpError) as error:
        return NativeLibrary(None, None, str(error))
    if functions.tidemill_smp_registration() != 0:
        return NativeLibrary(None, None, f"TensorFlow {tf.__version__} lacks what {path} needs of its C API")
    return NativeLibrary(ops, functions, source)


def _find() -> tuple[Path, str]:
    shipped = Path(__file__).with_name(LIBRARY_NAME)
    if shipped.is_file():
        return shipped, "wheel"
    cached = cached_library()
    if not cached.is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        compile_library(cached)
    return cached, "compiled"
