"""Compile a native library. Standard library only, because the build of a wheel imports this module."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HEADERS = Path(__file__).resolve().with_name("headers")
"""Headers that the sources of all libraries may include."""
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall")
# libstdc++ is linked statically, without unused parts and with hidden symbols, because TensorFlow has another copy.
_OWN_LIBSTDCXX = ("-static-libstdc++", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL")
_LINK_FLAGS = ("-shared", "-s", *_OWN_LIBSTDCXX, "-pthread", "-ldl")


class CompileError(Exception):
    """No C++17 compiler was found, or the compiler failed."""


@dataclass(frozen=True)
class NativeSources:
    """The C++ sources of one library. In a wheel, the compiled library is beside the directory of the sources."""

    name: str
    """NAME in the file name `libtidemill_NAME.so` and in the function `int tidemill_NAME_registration()`, which returns
    0 if the library's ops are registered."""
    directory: Path
    """Directory of the sources and their headers."""

    @property
    def library_name(self) -> str:
        """The file name of the library."""
        return f"libtidemill_{self.name}.so"

    @property
    def sources(self) -> list[Path]:
        """All source files, in the order of their names."""
        return sorted(self.directory.glob("*.cc"))

    @property
    def units(self) -> list[Path]:
        """Return the files to compile in parallel: those in `units/`, which include sources, or else all sources."""
        return sorted(self.directory.glob("units/*.cc")) or self.sources

    @property
    def include_flags(self) -> list[str]:
        """The compiler's flags for the headers."""
        return [f"-I{self.directory}", f"-I{HEADERS}"]


def find_compiler() -> list[str] | None:
    """Return the compiler that `CXX` names, else c++, g++ or clang++; None if no compiler is found."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        words = shlex.split(name or "")
        if words and shutil.which(words[0]):
            return words
        if name and name == os.environ.get("CXX"):
            return None  # never replace the compiler that CXX names by another one
    return None


def compiled_libraries(sources: NativeSources) -> list[Path]:
    """Return the paths at which a checkout may keep its compiled library, in the order of preference.

    The checkout comes first, because jobs can read it, then the user's cache. The file name depends on a hash of the
    sources and flags. If TIDEMILL_NATIVE_DIR is set, only that directory is returned.
    """
    digest = hashlib.sha256(repr((_FLAGS, _LINK_FLAGS, os.uname().machine, sys.platform)).encode())
    for directory in (sources.directory, HEADERS):
        for path in sorted((*directory.rglob("*.cc"), *directory.rglob("*.h"))):
            digest.update(str(path.relative_to(directory)).encode() + b"\0" + path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    places = [sources.directory.with_name("_compiled"), Path(base) / "tidemill" / sources.name]
    if os.environ.get("TIDEMILL_NATIVE_DIR"):
        places = [Path(os.environ["TIDEMILL_NATIVE_DIR"]) / sources.name]
    return [place / digest.hexdigest()[:16] / sources.library_name for place in places]


def compile_library(sources: NativeSources, target: Path) -> None:
    """Build the library at `target` atomically.

    Raises:
        CompileError: The compiler failed. The message contains the compiler's output.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("there is no C++ compiler (c++, g++, clang++, or the one that CXX names)")
    with tempfile.TemporaryDirectory(prefix=f"tidemill-{sources.name}-") as directory:
        objects = {unit: str(Path(directory) / f"{unit.name}.o") for unit in sources.units}
        flags = [*_FLAGS, *sources.include_flags]
        _run([[*compiler, *flags, "-c", str(unit), "-o", made] for unit, made in objects.items()])
        linked = Path(directory) / sources.library_name
        _run([[*compiler, *objects.values(), "-o", str(linked), *_LINK_FLAGS]])
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(linked, beside)
        beside.replace(target)


def find_library(sources: NativeSources) -> tuple[Path, str]:
    """Return the library's path and its origin: `wheel` or `compiled`. Compile the library if it is missing.

    Raises:
        CompileError: The wheel has no library, and none can be compiled.
        OSError: No directory for the compiled library is writable.
    """
    built = built_library(sources)
    if built is None:
        return _compile(sources, compiled_libraries(sources)), "compiled"
    return built, "wheel" if built == _shipped(sources) else "compiled"


def built_library(sources: NativeSources) -> Path | None:
    """Return the library's path; None if the library is missing, also in the places of compiled ones."""
    shipped = _shipped(sources)
    if shipped.is_file():
        return shipped
    return next((library for library in compiled_libraries(sources) if library.is_file()), None)


def _shipped(sources: NativeSources) -> Path:
    return sources.directory.with_name(sources.library_name)


def _compile(sources: NativeSources, places: list[Path]) -> Path:
    """Build the library at the first of the paths that is writable."""
    for library in places:
        try:
            library.parent.mkdir(parents=True, exist_ok=True)
            compile_library(sources, library)
        except OSError:
            if library == places[-1]:
                raise
            continue
        return library
    raise AssertionError("there is always a place")


def _run(commands: list[list[str]]) -> None:
    """Run commands in parallel."""
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    outputs = [process.communicate()[0] for process in started]
    for index, process in enumerate(started):
        if process.returncode:
            command = " ".join(map(shlex.quote, commands[index]))
            raise CompileError(f"`{command}` failed: {outputs[index].strip()}")
