"""Compile the S3 file system's library into the wheel; without it TensorFlow has no ``s3://``."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])

PACKAGE = ROOT / "src" / "tidemill_tensorflow"
sys.path.insert(0, str(PACKAGE))
from _shared.native_build import compiling, wheel  # noqa: E402


class NativeFilesystemHook(wheel.NativeLibraryHook):
    """Adds the library to the wheel."""

    libraries = (compiling.NativeSources("s3", PACKAGE / "native"),)
