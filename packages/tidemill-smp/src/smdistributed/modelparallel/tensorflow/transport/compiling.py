"""Compile the native transport. Standard library only: the build of the wheel loads this file by itself."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["LIBRARY_NAME", "SOURCES", "CompileError", "cached_library", "compile_library", "find_compiler"]

LIBRARY_NAME = "libtidemill_smp.so"
NATIVE = Path(__file__).resolve().parent / "native"
SOURCES = ("connection.cc", "ops.cc")
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


def cached_library() -> Path:
    """Where a checkout keeps the library that it has compiled from these sources."""
    digest = hashlib.sha256(repr((FLAGS, LINK_FLAGS, os.uname().machine, sys.platform)).encode())
    for path in sorted((*NATIVE.glob("*.cc"), *NATIVE.glob("*.h"))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidemill" / "smp" / digest.hexdigest()[:16] / LIBRARY_NAME


def compile_library(target: Path) -> None:
    """Build the library at `target`: whole or not at all.

    Raises:
        CompileError: With the compiler's own words.
    """
    compiler = find_compiler()
    if compiler is None:
        raise CompileError("there is no C++ compiler (c++, g++, clang++, or the one that CXX names)")
    with tempfile.TemporaryDirectory(prefix="tidemill-smp-") as directory:
        objects = [Path(directory) / f"{source}.o" for source in SOURCES]
        # One process per source: the build takes as long as the longest of them.
        commands = [
            [*compiler, *FLAGS, "-c", str(NATIVE / source), "-o", str(part)]
            for source, part in zip(SOURCES, objects, strict=True)
        ]
        _run(commands)
        linked = Path(directory) / LIBRARY_NAME
        _run([[*compiler, *map(str, objects), "-o", str(linked), *LINK_FLAGS]])
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copyfile(linked, beside)
        beside.replace(target)


def _run(commands: list[list[str]]) -> None:
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for command in commands
    ]
    said = [process.communicate()[0] for process in started]
    for process, command, output in zip(started, commands, said, strict=True):
        if process.returncode:
            raise CompileError(f"`{shlex.join(command)}` failed: {output.strip()}")
