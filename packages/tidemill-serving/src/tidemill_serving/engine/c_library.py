"""The C API of the installed TensorFlow wheel through ctypes, without importing Python's TensorFlow.

Calls that may take long (loading or running a model) release the GIL. All others hold it: if a call of less than a
microsecond released the GIL, another thread could take it and hold it for up to five milliseconds.
"""

import ctypes
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tidemill_serving.engine.wheel import quiet_library, wheel_directory

_FILE_NAME = "libtensorflow_cc.2.dylib" if sys.platform == "darwin" else "libtensorflow_cc.so.2"

_HANDLE, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_SIZE, _INT64 = ctypes.c_size_t, ctypes.c_int64
_Prototype = tuple[Any, tuple[Any, ...]]  # return type, argument types


class Buffer(ctypes.Structure):
    """TF_Buffer: bytes of a message."""

    _fields_ = (("data", _HANDLE), ("length", _SIZE), ("deallocator", _HANDLE))


class Output(ctypes.Structure):
    """TF_Output: one output of an operation of a graph."""

    _fields_ = (("operation", _HANDLE), ("index", _INT))


_LONG_CALLS: dict[str, _Prototype] = {
    "TF_CloseSession": (None, (_HANDLE, _HANDLE)),
    "TF_DeleteSession": (None, (_HANDLE, _HANDLE)),
    "TF_DeleteGraph": (None, (_HANDLE,)),
    "TF_LoadLibrary": (_HANDLE, (_TEXT, _HANDLE)),
    "TF_LoadSessionFromSavedModel": (
        _HANDLE,
        (_HANDLE, _HANDLE, _TEXT, ctypes.POINTER(_TEXT), _INT, _HANDLE, _HANDLE, _HANDLE),
    ),
    "TF_SessionRun": (
        None,
        (
            *(_HANDLE, _HANDLE),  # session, run options
            *(_HANDLE, _HANDLE, _INT),  # inputs and their tensors
            *(_HANDLE, _HANDLE, _INT),  # outputs and their tensors
            *(_HANDLE, _INT),  # target operations
            *(_HANDLE, _HANDLE),  # run metadata, status
        ),
    ),
}
_SHORT_CALLS: dict[str, _Prototype] = {
    "TF_AddInput": (None, (_HANDLE, Output)),
    "TF_AllocateTensor": (_HANDLE, (_INT, _HANDLE, _INT, _SIZE)),
    "TF_DeleteBuffer": (None, (_HANDLE,)),
    "TF_DeleteDeviceList": (None, (_HANDLE,)),
    "TF_DeleteSessionOptions": (None, (_HANDLE,)),
    "TF_DeleteStatus": (None, (_HANDLE,)),
    "TF_DeleteTensor": (None, (_HANDLE,)),
    "TF_DeviceListCount": (_INT, (_HANDLE,)),
    "TF_Dim": (_INT64, (_HANDLE, _INT)),
    "TF_FinishOperation": (_HANDLE, (_HANDLE, _HANDLE)),
    "TF_GetCode": (_INT, (_HANDLE,)),
    "TF_GraphGetOpDef": (None, (_HANDLE, _TEXT, ctypes.POINTER(Buffer), _HANDLE)),
    "TF_GraphGetTensorNumDims": (_INT, (_HANDLE, Output, _HANDLE)),
    "TF_GraphGetTensorShape": (None, (_HANDLE, Output, ctypes.POINTER(_INT64), _INT, _HANDLE)),
    "TF_GraphOperationByName": (_HANDLE, (_HANDLE, _TEXT)),
    "TF_Message": (_TEXT, (_HANDLE,)),
    "TF_NewBuffer": (ctypes.POINTER(Buffer), ()),
    "TF_NewBufferFromString": (_HANDLE, (_TEXT, _SIZE)),
    "TF_NewGraph": (_HANDLE, ()),
    "TF_NewOperation": (_HANDLE, (_HANDLE, _TEXT, _TEXT)),
    "TF_NewSessionOptions": (_HANDLE, ()),
    "TF_NewStatus": (_HANDLE, ()),
    "TF_NumDims": (_INT, (_HANDLE,)),
    "TF_OperationNumOutputs": (_INT, (_HANDLE,)),
    "TF_OperationOutputType": (_INT, (Output,)),
    "TF_SessionListDevices": (_HANDLE, (_HANDLE, _HANDLE)),
    "TF_SetAttrType": (None, (_HANDLE, _TEXT, _INT)),
    "TF_SetConfig": (None, (_HANDLE, _TEXT, _SIZE, _HANDLE)),
    "TF_StringGetDataPointer": (_HANDLE, (_HANDLE,)),
    "TF_StringGetSize": (_SIZE, (_HANDLE,)),
    "TF_TensorByteSize": (_SIZE, (_HANDLE,)),
    "TF_TensorData": (_HANDLE, (_HANDLE,)),
    "TF_TensorFromProto": (None, (_HANDLE, _HANDLE, _HANDLE)),
    "TF_TensorType": (_INT, (_HANDLE,)),
    "TF_Version": (_TEXT, ()),
}


class CLibraryError(Exception):
    """A function of the library failed.

    Attributes:
        code: TensorFlow's status code, as a number.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CLibrary:
    """The functions of TensorFlow's C API.

    Args:
        path: The library.

    Attributes:
        functions: The functions that the engine uses, by name.
        path: File of the library.

    Raises:
        ImportError: The library cannot be loaded, or lacks functions.
    """

    def __init__(self, path: Path) -> None:
        try:
            long, short = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        except OSError as error:
            raise ImportError(f"{path} cannot be loaded: {error}") from error
        missing = [name for name in (*_LONG_CALLS, *_SHORT_CALLS) if not hasattr(long, name)]
        if missing:
            raise ImportError(f"{path} has no {', '.join(missing)}")
        found = {name: _typed(long, name, prototype) for name, prototype in _LONG_CALLS.items()}
        found |= {name: _typed(short, name, prototype) for name, prototype in _SHORT_CALLS.items()}
        self.functions = SimpleNamespace(**found)
        self.path = path
        self.version: str = self.functions.TF_Version().decode()

    @property
    def files(self) -> list[Path]:
        """Return the files of the library: the wheel splits the library in two."""
        return [self.path, *self.path.parent.glob("libtensorflow_framework.*")]

    @contextmanager
    def status(self) -> Generator[int]:
        """Provide a TF_Status for calls in a ``with`` block, and check it when the block ends.

        Raises:
            CLibraryError: A call left a code other than OK.
        """
        status = self.functions.TF_NewStatus()
        try:
            yield status
            self.check(status)
        finally:
            self.functions.TF_DeleteStatus(status)

    def check(self, status: int) -> None:
        """Raise CLibraryError if the status is not OK.

        Args:
            status: Address of a TF_Status.

        Raises:
            CLibraryError: With the code and message of a status that is not OK.
        """
        code = self.functions.TF_GetCode(status)
        if code:
            raise CLibraryError(code, self.functions.TF_Message(status).decode(errors="replace"))


def open_c_library() -> CLibrary:
    """Load the library of the installed wheel without TensorFlow's start-up messages.

    Raises:
        StartFailed: TensorFlow is not installed in this environment.
        ImportError: The wheel has no C library, or the library lacks functions.
    """
    path = wheel_directory() / _FILE_NAME
    if not path.is_file():
        raise ImportError(f"there is no {path}")
    with quiet_library():
        return CLibrary(path)


def _typed(library: ctypes.CDLL, name: str, prototype: _Prototype) -> Callable[..., Any]:
    function = library[name]  # by index: returns a new function object, so that setting types affects no other user
    function.restype, function.argtypes = prototype
    return function
