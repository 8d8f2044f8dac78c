"""Compile the native collectives into the wheel."""

import runpy
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
COPIES = ROOT.parents[1] / "shared" / "copies.py"
if COPIES.is_file():  # in a checkout; a source archive contains the copies of shared source
    runpy.run_path(str(COPIES))["main"]([str(ROOT)])

PACKAGE = ROOT / "src" / "horovod" / "tensorflow"
sys.path.insert(0, str(PACKAGE))  # imports what is shared without the package, which imports TensorFlow
from _shared.native_build import compiling, wheel  # noqa: E402


class NativeCollectivesHook(wheel.NativeLibraryHook):
    """Adds the library of collectives to the wheel."""

    libraries = (compiling.NativeSources("horovod", PACKAGE / "native"),)
