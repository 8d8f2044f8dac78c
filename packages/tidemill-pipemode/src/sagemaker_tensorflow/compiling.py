"""Compile the native reader. Standard library only: the build of the wheel loads this file by itself."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

__all__ = ["LIBRARY_NAME", "SOURCES", "CompileError", "compile_library", "find_compiler"]

LIBRARY_NAME = "libtidemill_pipe.so"
NATIVE = Path(__file__).resolve().parent / "native"
# What is compiled together: most of the time goes into the standard headers, and two compilers at once is what the
# smallest machine can run.
UNITS = {
    "parsers": ("crc32c.cc", "framing.cc", "outcome.cc"),
    "reader": ("small_file.cc", "feeder_lock.cc", "pipe_reader.cc", "ops.cc"),
}
SOURCES = tuple(source for sources in UNITS.values() for source in sources)
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Wall")
# libstdc++ comes along, but for what nobody calls, and is visible to nobody else: TensorFlow has one of its own.
_OWN_LIBSTDCXX = ("-static-libstdc++", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL")
LINK_FLAGS = ("-shared", "-s", *_OWN_LIBSTDCXX, "-pthread", "-ldl")


class CompileError(Exception):
    """There is no C++17 compiler, or it refused."""


def find_compiler() -> list[str] | None:
    """The compiler that `CXX` names, else c++, g++ or clang++; None if there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        words = shlex.split(name or "")
        if words and shutil.which(words[0]):
            return words
        if name and name == os.environ.get("CXX"):
            return None  # the one that was asked for, or none
    return None


def compile_library(target: Path) -> None:
    """Build the library at `target`: whole or not at all.

    Raises:
        CompileError: With the compiler's own words.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("there is no C++ compiler (c++, g++, clang++, or the one that CXX names)")
    with tempfile.TemporaryDirectory(prefix="tidemill-pipemode-") as directory:
        objects = [_write_unit(Path(directory), name) for name in UNITS]
        _run([[*compiler, *FLAGS, "-c", f"{part}.cc", "-o", str(part)] for part in objects])
        linked = Path(directory) / LIBRARY_NAME
        _run([[*compiler, *map(str, objects), "-o", str(linked), *LINK_FLAGS]])
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(linked, beside)
        beside.replace(target)


def _write_unit(directory: Path, name: str) -> Path:
    """Write the file that includes the sources of a unit; the path of its object, which is to be made of it."""
    part = directory / f"{name}.o"
    lines = [f'#include "{NATIVE / source}"\n' for source in UNITS[name]]
    Path(f"{part}.cc").write_text("".join(lines), encoding="utf-8")
    return part


def _run(commands: list[list[str]]) -> None:
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    said = [process.communicate()[0] for process in started]
    for process, command, output in zip(started, commands, said, strict=True):
        if process.returncode:
            raise CompileError(f"`{shlex.join(command)}` failed: {output.strip()}")
