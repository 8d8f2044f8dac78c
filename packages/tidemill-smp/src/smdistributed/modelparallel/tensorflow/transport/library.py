"""Find the native transport, or make it, and load it into TensorFlow.

An installed wheel brings the library. A checkout compiles it when it is first needed, into a cache named after the
sources; where that fails, tensors travel by Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from smdistributed.modelparallel.tensorflow.transport.compiling import (
    FLAGS,
    LIBRARY_NAME,
    LINK_FLAGS,
    NATIVE,
    CompileError,
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
    cached = _cache_dir() / _fingerprint() / LIBRARY_NAME
    if not cached.is_file():
        cached.parent.mkdir(parents=True, exist_ok=True)
        compile_library(cached)
    return cached, "compiled"


def _cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidemill" / "smp"


def _fingerprint() -> str:
    digest = hashlib.sha256(repr((FLAGS, LINK_FLAGS, os.uname().machine, sys.platform)).encode())
    for path in sorted((*NATIVE.glob("*.cc"), *NATIVE.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]
