"""Compile the native transport into the wheel: one library for every TensorFlow and every Python.

Nothing of TensorFlow is needed to build it. Where there is no C++ compiler the wheel is built without it, for any
platform, and the transport in Python takes over. An editable install compiles on first need instead.
"""

import os
import re
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent / "src/smdistributed/modelparallel/tensorflow/transport"))
from compiling import LIBRARY_NAME, CompileError, compile_library, find_compiler

PLACE = "smdistributed/modelparallel/tensorflow/transport"
OLDEST_GLIBC = (2, 17)  # the oldest for which a manylinux tag of this form is defined


class NativeTransportHook(BuildHookInterface):
    """Builds the library with the compiler that `CXX` names, or the first one found."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to the wheel, and say for which machines it is."""
        if version == "editable" or self.target_name != "wheel":
            return
        if find_compiler() is None and not os.environ.get("TIDEMILL_REQUIRE_NATIVE"):
            self.app.display_warning("no C++ compiler: the wheel has the transport in Python only")
            return
        self._directory = tempfile.mkdtemp(prefix="tidemill-smp-")
        library = Path(self._directory) / LIBRARY_NAME
        try:
            compile_library(library)
        except CompileError as error:
            raise RuntimeError(f"{error}. To build without it, hide the compiler: CXX=none") from error
        build_data["force_include"][str(library)] = f"{PLACE}/{LIBRARY_NAME}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(library)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary library."""
        if hasattr(self, "_directory"):
            shutil.rmtree(self._directory)


def platform_tag(library: Path) -> str:
    """The platforms on which the library runs: on glibc the manylinux tag of the newest symbol that it asks for."""
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)[.\d]*\0", library.read_bytes())
    if not plain.startswith("linux_") or not versions:
        return plain
    major, minor = max([OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in versions)])
    return plain.replace("linux_", f"manylinux_{major}_{minor}_")
