"""Compile the native transport into the wheel; without a compiler the wheel uses the Python transport."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])

PACKAGE = ROOT / "src" / "smdistributed" / "modelparallel" / "tensorflow"
sys.path.insert(0, str(PACKAGE))  # imports what is shared without the package, which imports TensorFlow
from _shared.native_build import compiling, wheel  # noqa: E402


class NativeTransportHook(wheel.NativeLibraryHook):
    """Adds the transport's library to the wheel."""

    libraries = (compiling.NativeSources("smp", PACKAGE / "transport" / "native"),)
