"""Register ``s3://`` with TensorFlow: `native/s3_plugin.cc` passes TensorFlow's file system calls to Python."""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidemill_tensorflow._shared.native_build.compiling import NativeSources, find_library
from tidemill_tensorflow.s3.failures import CANCELLED, INTERNAL, FilesystemError
from tidemill_tensorflow.s3.filesystem import S3Filesystem
from tidemill_tensorflow.s3.location import SCHEME

SOURCES = NativeSources("s3", Path(__file__).resolve().parents[1] / "native")
_PATIENCE_MS = 10_000
"""Time in milliseconds that the interpreter's exit waits for calls in progress."""
_TEXT_BYTES = 4096


class _Report(ctypes.Structure):
    _fields_ = (("code", ctypes.c_int), ("text", ctypes.c_char * _TEXT_BYTES))


class _Statistics(ctypes.Structure):
    _fields_ = (("length", ctypes.c_int64), ("mtime_ns", ctypes.c_int64), ("is_directory", ctypes.c_bool))


_PATH = ctypes.c_char_p
_FILE = ctypes.c_int64
_ADDRESS = ctypes.c_void_p
_COUNT = ctypes.c_uint64
_Failure = ctypes.POINTER(_Report)
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # result and arguments, as in `Calls` of the library, in its order
    "open_reader": (_FILE, _PATH),
    "read": (ctypes.c_int64, _FILE, ctypes.c_uint64, _COUNT, _ADDRESS),
    "open_writer": (_FILE, _PATH, ctypes.c_int),
    "append": (None, _FILE, _ADDRESS, _COUNT),
    "tell": (ctypes.c_int64, _FILE),
    "flush": (None, _FILE),
    "close": (None, _FILE),
    "discard": (None, _FILE),
    "create_directory": (None, _PATH),
    "delete_file": (None, _PATH),
    "delete_directory": (None, _PATH),
    "delete_recursively": (None, _PATH),
    "rename": (None, _PATH, _PATH),
    "copy": (None, _PATH, _PATH),
    "stat": (None, _PATH, ctypes.POINTER(_Statistics)),
    "children": (None, _PATH, _ADDRESS),
}
_TYPES = {name: ctypes.CFUNCTYPE(*signature, _Failure) for name, signature in _SIGNATURES.items()}


class _Calls(ctypes.Structure):
    _fields_ = tuple(_TYPES.items())


class _Bridge:
    """Methods that the native library calls, by name. The library refers to open files by number."""

    def __init__(self, filesystem: S3Filesystem, add: Callable[[int, bytes], None]) -> None:
        self._filesystem = filesystem
        self._add = add
        self._numbers = itertools.count(1)
        self._files: dict[int, Any] = {}

    def open_reader(self, path: bytes) -> int:
        return self._keep(self._filesystem.open_reader(os.fsdecode(path)))

    def read(self, file: int, offset: int, count: int, buffer: int) -> int:
        return self._files[file].read_into(offset, _memory(buffer, count)) if count else 0

    def open_writer(self, path: bytes, append: int) -> int:
        return self._keep(self._filesystem.open_writer(os.fsdecode(path), append=bool(append)))

    def append(self, file: int, data: int, count: int) -> None:
        if count:
            self._files[file].append(_memory(data, count))

    def tell(self, file: int) -> int:
        return self._files[file].position

    def flush(self, file: int) -> None:
        self._files[file].flush()

    def close(self, file: int) -> None:
        self._files[file].close()

    def discard(self, file: int) -> None:
        found = self._files.pop(file, None)
        if found is not None:
            found.discard()

    def create_directory(self, path: bytes) -> None:
        self._filesystem.create_directory(os.fsdecode(path))

    def delete_file(self, path: bytes) -> None:
        self._filesystem.delete_file(os.fsdecode(path))

    def delete_directory(self, path: bytes) -> None:
        self._filesystem.delete_directory(os.fsdecode(path))

    def delete_recursively(self, path: bytes) -> None:
        self._filesystem.delete_recursively(os.fsdecode(path))

    def rename(self, source: bytes, target: bytes) -> None:
        self._filesystem.rename(os.fsdecode(source), os.fsdecode(target))

    def copy(self, source: bytes, target: bytes) -> None:
        self._filesystem.copy(os.fsdecode(source), os.fsdecode(target))

    def stat(self, path: bytes, found: Any) -> None:
        status = self._filesystem.status(os.fsdecode(path))
        found.contents.length, found.contents.mtime_ns = status.length, status.mtime_ns
        found.contents.is_directory = status.is_directory

    def children(self, path: bytes, names: int) -> None:
        for name in self._filesystem.children(os.fsdecode(path)):
            self._add(names, os.fsencode(name))

    def _keep(self, file: Any) -> int:
        number = next(self._numbers)
        self._files[number] = file
        return number


def register() -> None:
    """Register ``s3://`` with the imported TensorFlow, unless TensorFlow already has this scheme.

    Raises:
        CompileError: The native library is not in the wheel, and cannot be compiled.
        OSError: The native library cannot be written or loaded.
        tf.errors.OpError: TensorFlow refuses the native library.
    """
    import tensorflow as tf

    # TensorFlow 2.6 cannot list its schemes, and has no s3:// of its own.
    schemes = getattr(tf.io.gfile, "get_registered_schemes", None)
    if schemes is not None and SCHEME in schemes():
        return

    path, _ = find_library(SOURCES)
    library = ctypes.CDLL(str(path))
    # PyDLL keeps the interpreter's lock, which saves time because `add` is called once per name of a directory.
    add = ctypes.PyDLL(str(path)).tidemill_s3_add
    add.argtypes, add.restype = (ctypes.c_void_p, ctypes.c_char_p), None
    bridge = _Bridge(S3Filesystem(), add)
    calls = _Calls(**{name: kind(_reporting(getattr(bridge, name))) for name, kind in _TYPES.items()})
    if library.tidemill_s3_prepare(SCHEME.encode(), ctypes.byref(calls)) != 0:
        raise OSError("the functions of TensorFlow's C library cannot be found")
    tf.experimental.register_filesystem_plugin(str(path))
    _registered.append((library, calls))
    os.register_at_fork(after_in_child=library.tidemill_s3_forked)


_registered: list[tuple[ctypes.CDLL, _Calls]] = []
"""Libraries and callbacks, kept because TensorFlow calls them until the process ends."""


# Exit handlers run in reverse order. If this module is imported before TensorFlow, this handler runs after the handlers
# of TensorFlow and of the script, which may still write files.
@atexit.register
def _close() -> None:
    for library, _ in _registered:
        library.tidemill_s3_close(_PATIENCE_MS)


def _memory(address: int, count: int) -> memoryview:
    return memoryview((ctypes.c_char * count).from_address(address)).cast("B")


def _reporting(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Return the function for calls from C: an exception is stored in the report, which is the last argument."""

    def call(*arguments: Any) -> int | None:
        report = arguments[-1].contents
        try:
            return function(*arguments[:-1])
        except FilesystemError as error:
            report.code, text = error.code, error.text
        except KeyboardInterrupt:
            report.code, text = CANCELLED, "interrupted"
        except BaseException as error:  # noqa: BLE001 - C cannot handle it; TensorFlow raises the reported error
            report.code, text = INTERNAL, f"{type(error).__name__}: {error}"
        report.text = text.encode(errors="replace")[: _TEXT_BYTES - 1]
        return 0

    return call
