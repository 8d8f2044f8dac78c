"""Compile the native libraries of the distributions into the checkout, where jobs and endpoints find them.

    python shared/compile_native.py

`make` runs this script, because jobs in a sandbox cannot write into the checkout and would compile the libraries each
time. Existing libraries are not compiled again. Without a compiler the script compiles nothing, and the packages use
their Python implementations.
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
    "feeder": "tidemill/src/tidemill/shim/feeder/native",
    "horovod": "tidemill-horovod/src/horovod/tensorflow/native",
    "json": "tidemill-serving/src/tidemill_serving/rest/native",
    "pipe": "tidemill-pipemode/src/sagemaker_tensorflow/native",
    "serving": "tidemill-serving/src/tidemill_serving/engine/native",
    "s3": "tidemill-tensorflow/src/tidemill_tensorflow/native",
    "smp": "tidemill-smp/src/smdistributed/modelparallel/tensorflow/transport/native",
    "temporary_files": "tidemill-runtime/src/tidemill_runtime/native",
}
"""The sources of each library, by its name in the distribution."""


def main() -> None:
    """Compile the missing libraries."""
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
