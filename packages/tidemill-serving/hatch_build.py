"""Compile the native libraries into the wheel; without a compiler Python and ctypes do their work."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])

PACKAGE = ROOT / "src" / "tidemill_serving"
sys.path.insert(0, str(PACKAGE))  # imports what is shared without the package, whose dependencies are not there
from _shared.native_build import compiling, wheel  # noqa: E402


class NativeLibrariesHook(wheel.NativeLibraryHook):
    """Adds the libraries to the wheel."""

    libraries = (
        compiling.NativeSources("json", PACKAGE / "rest" / "native"),
        compiling.NativeSources("serving", PACKAGE / "engine" / "native"),
    )
