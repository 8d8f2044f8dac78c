"""Loads the native transport from the installed wheel, or compiles it. Without either, Python sends the tensors."""

from functools import lru_cache
from pathlib import Path

from smdistributed.modelparallel.tensorflow._shared.native_build.compiling import NativeSources
from smdistributed.modelparallel.tensorflow._shared.native_build.loading import NativeLibrary, load_library

__all__ = ["TRANSPORT", "NativeLibrary", "load_native_library"]

TRANSPORT = NativeSources("smp", Path(__file__).resolve().with_name("native"))


@lru_cache(maxsize=1)
def load_native_library() -> NativeLibrary:
    """Load the native transport once per process."""
    return load_library(TRANSPORT)
