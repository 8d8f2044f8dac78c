"""Load the native reader from the installed wheel, or compile it. If neither works, the Python reader is used."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path

from sagemaker_tensorflow import waits
from sagemaker_tensorflow._shared.native_build.compiling import NativeSources
from sagemaker_tensorflow._shared.native_build.loading import NativeLibrary, load_library

__all__ = ["READER", "NativeLibrary", "load_native_reader"]

READER = NativeSources("pipe", Path(__file__).resolve().with_name("native"))


_loading = threading.Lock()


def load_native_reader() -> NativeLibrary:
    """Load the native reader once per process, also if several threads ask for it at once."""
    with _loading:
        return _load()


@lru_cache(maxsize=1)
def _load() -> NativeLibrary:
    library = load_library(READER)
    if library.ops is not None:
        waits.on_interrupt(library.functions.tidemill_pipe_interrupt)
        waits.on_stop(library.functions.tidemill_pipe_stop)
    return library
