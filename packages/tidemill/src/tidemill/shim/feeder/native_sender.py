"""The function of the feeder's native library. Without the library, Python sends each file."""

import ctypes
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from pathlib import Path

from tidemill._shared.native_build.compiling import NativeSources, built_library

SOURCES = NativeSources("feeder", Path(__file__).resolve().with_name("native"))


class Outcome(IntEnum):
    """How a call ended; ``native/send_files.cc`` describes each."""

    STOPPED = 0
    CANCELLED = 1
    READER_GONE = 2
    ENDED_EARLY = 3
    FAILED = 4


class Progress(ctypes.Structure):
    """What a call has sent.

    Attributes:
        files: Number of files.
        sent_bytes: Number of bytes written to the FIFO.
        moved: Number of bytes of a file that ended early.
        error: The errno of a failure.
    """

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("sent_bytes", ctypes.c_uint64),
        ("moved", ctypes.c_uint64),
        ("error", ctypes.c_int32),
    )


@cache
def native_sender() -> Callable[..., int] | None:
    """Return ``tidemill_feeder_send`` of ``native/send_files.cc``; None if the library was not built."""
    library = built_library(SOURCES)
    if library is None:
        return None
    send = ctypes.CDLL(str(library)).tidemill_feeder_send
    send.argtypes = (
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_uint64,
        ctypes.c_int32,
        ctypes.POINTER(Progress),
    )
    send.restype = ctypes.c_int32
    return send
