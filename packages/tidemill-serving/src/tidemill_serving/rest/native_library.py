"""The native library that reads and writes the JSON of predict calls: from the installed wheel, or compiled.

It has a plain C interface, called through `ctypes`. Short texts are processed with the GIL held, since releasing and
reacquiring it takes longer than the work; long texts without, so that batch threads can run.
"""

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidemill_serving._shared.native_build.compiling import CompileError, NativeSources, find_library

JSON_LIBRARY = NativeSources("json", Path(__file__).resolve().with_name("native"))
MAX_RANK = 32
"""Maximum depth of lists for the native library; Python reads deeper ones."""
KINDS = {
    name: number
    for number, name in enumerate(
        ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
    )
}
"""The library's numbers of element types, by NumPy's type names."""
_HELD_BYTES = 65_536  # texts up to this size are processed while the interpreter's lock is held


class Input(ctypes.Structure):
    """One input of a signature; see `native/request.h`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("name_size", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("kind", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_RANK),
    )


class NativeRequest(ctypes.Structure):
    """The values that the library reads from a body; see `native/request.h`."""

    _fields_ = (
        ("inputs", ctypes.POINTER(Input)),
        ("num_inputs", ctypes.c_int64),
        ("signature", ctypes.c_char_p),
        ("signature_size", ctypes.c_int64),
        ("named_offset", ctypes.c_int64),
        ("named_size", ctypes.c_int64),
        ("row_form", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class NativeJson:
    """The library's functions, each in two forms: with the interpreter's lock held, and without.

    Attributes:
        source: ``wheel`` or ``compiled``.
    """

    held: Any
    free: Any
    source: str

    def functions(self, size_bytes: int) -> Any:
        """Return the functions to call for a text of that size.

        Args:
            size_bytes: Bytes of the text. Short texts are read with the interpreter's lock held, which saves releasing
                it.

        Returns:
            The library's functions, by ctypes.
        """
        return self.held if size_bytes <= _HELD_BYTES else self.free


@lru_cache(maxsize=1)
def load_native_json() -> NativeJson | str:
    """Load the library once per process; return the reason if it is not available."""
    try:
        path, source = find_library(JSON_LIBRARY)
        return NativeJson(_declared(ctypes.PyDLL(str(path))), _declared(ctypes.CDLL(str(path))), source)
    except (CompileError, OSError) as error:
        return str(error)


def _declared(library: Any) -> Any:
    read, write = library.tidemill_json_read_request, library.tidemill_json_write_lists
    read.argtypes = (ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p)
    read.restype = ctypes.c_int
    write.argtypes = (ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    write.restype = ctypes.c_int64
    pointer = ctypes.c_void_p
    read_batch, write_batch = library.tidemill_json_read_batch, library.tidemill_json_write_batch
    read_batch.argtypes = (pointer, pointer, ctypes.c_int64, ctypes.c_int64, pointer, pointer)
    read_batch.restype = ctypes.c_int64
    write_batch.argtypes = (
        *(pointer, ctypes.c_int32, ctypes.c_char_p, ctypes.c_int32),
        *(pointer, ctypes.c_int64, ctypes.c_char_p, ctypes.c_char_p, pointer, pointer),
    )
    write_batch.restype = ctypes.c_int64
    return library
