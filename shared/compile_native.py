"""Compile the native libraries of the distributions into the checkout, where jobs and endpoints find them.

    python shared/compile_native.py

`make` runs it: what runs in a sandbox may not write into the checkout, and would compile for itself each time. Does
nothing for a library that is there, and nothing without a compiler: what the libraries do is then done in Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

from native_build.compiling import (  # pyrefly: ignore[missing-import]
    CompileError,
    NativeSources,
    compile_library,
    compiled_libraries,
    find_compiler,
)

PACKAGES = Path(__file__).resolve().parents[1] / "packages"

LIBRARIES = {
    "horovod": "tidemill-horovod/src/horovod/tensorflow/native",
    "json": "tidemill-serving/src/tidemill_serving/rest/native",
    "pipe": "tidemill-pipemode/src/sagemaker_tensorflow/native",
    "serving": "tidemill-serving/src/tidemill_serving/engine/native",
    "s3": "tidemill-tensorflow/src/tidemill_tensorflow/native",
    "smp": "tidemill-smp/src/smdistributed/modelparallel/tensorflow/transport/native",
}
"""The sources of each library, by the name that its distribution gives it."""


def main() -> None:
    """Compile what is missing."""
    if find_compiler() is None:
        return
    for name, directory in LIBRARIES.items():
        sources = NativeSources(name, PACKAGES / directory)
        library = compiled_libraries(sources)[0]
        if library.is_file():
            continue
        library.parent.mkdir(parents=True, exist_ok=True)
        try:
            compile_library(sources, library)
        except CompileError as error:
            sys.stderr.write(f"{directory} cannot be compiled; Python will do its work. {error}\n")


if __name__ == "__main__":
    main()
