"""Compile a native library into the wheel of its distribution: one library for every TensorFlow and every Python.

The build does not need TensorFlow. Without a C++ compiler the wheel is built without the library, for any platform,
and the package uses its Python implementation. An editable install compiles the library on first use.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from .compiling import CompileError, NativeSources, compile_library, find_compiler

_GLIBC_VERSION = rb"GLIBC_(\d+)\.(\d+)[.\d]*\0"
_OLDEST_GLIBC = (2, 17)  # the oldest for which a manylinux tag of this form is defined


class NativeLibraryHook(BuildHookInterface[Any]):
    """Builds the libraries with the compiler that `CXX` names, or the first one found.

    With `TIDEMILL_REQUIRE_NATIVE` in the environment a missing compiler is an error.
    """

    libraries: ClassVar[tuple[NativeSources, ...]]
    """The libraries to compile. Their sources are below the directory `src` of the distribution."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries and their platform tag to a wheel."""
        if version == "editable" or self.target_name != "wheel":
            return
        if find_compiler() is None and not os.environ.get("TIDEMILL_REQUIRE_NATIVE"):
            names = ", ".join(sources.library_name for sources in self.libraries)
            self.app.display_warning(f"no C++ compiler: the wheel is made without {names}")
            return
        self._directory = tempfile.mkdtemp(prefix="tidemill-native-")
        built = [self._compile(sources, build_data) for sources in self.libraries]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(built)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary libraries."""
        if hasattr(self, "_directory"):
            shutil.rmtree(self._directory)

    def _compile(self, sources: NativeSources, build_data: dict[str, Any]) -> Path:
        library = Path(self._directory) / sources.library_name
        try:
            compile_library(sources, library)
        except CompileError as error:
            raise RuntimeError(f"{error}. To build without native code, hide the compiler: CXX=none") from error
        place = sources.directory.with_name(library.name).relative_to(Path(self.root, "src").resolve())
        build_data["force_include"][str(library)] = str(place)
        return library


def platform_tag(libraries: Sequence[Path]) -> str:
    """Return the platforms on which libraries run: on glibc the manylinux tag of the newest symbol that they need."""
    plain = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    versions = [version for library in libraries for version in re.findall(_GLIBC_VERSION, library.read_bytes())]
    if not plain.startswith("linux_") or not versions:
        return plain
    major, minor = max([_OLDEST_GLIBC, *((int(major), int(minor)) for major, minor in versions)])
    return plain.replace("linux_", f"manylinux_{major}_{minor}_")
