"""The native library: from the installed wheel, or compiled by a checkout."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from horovod.tensorflow._shared.native_build.compiling import NativeSources
from horovod.tensorflow._shared.native_build.loading import NativeLibrary, load_library

__all__ = ["COLLECTIVES", "NativeLibrary", "load_native_library"]

COLLECTIVES = NativeSources("horovod", Path(__file__).resolve().with_name("native"))


@lru_cache(maxsize=1)
def load_native_library() -> NativeLibrary:
    """Load the native library once per process."""
    return load_library(COLLECTIVES)
