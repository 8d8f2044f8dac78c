"""Compile the native reader into the wheel; without a compiler the reader in Python does its work."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])

PACKAGE = ROOT / "src" / "sagemaker_tensorflow"
sys.path.insert(0, str(PACKAGE))  # imports what is shared without the package, which imports TensorFlow
from _shared.native_build import compiling, wheel  # noqa: E402


class NativeReaderHook(wheel.NativeLibraryHook):
    """Adds the reader's library to the wheel."""

    libraries = (compiling.NativeSources("pipe", PACKAGE / "native"),)
