"""Compile the library for the S3 client inside TensorFlow 1.15 into the wheel."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])

PACKAGE = ROOT / "src" / "tidemill_runtime"
sys.path.insert(0, str(PACKAGE))
from _shared.native_build import compiling, wheel  # noqa: E402

sys.path.remove(str(PACKAGE))  # it has modules named like those of the standard library


class NativeLibraryHook(wheel.NativeLibraryHook):
    """Adds the library to the wheel."""

    libraries = (compiling.NativeSources("temporary_files", PACKAGE / "native"),)
