"""Run signatures through this package's native library: one call instead of a dozen through ctypes.

An installed wheel contains the library; a checkout compiles it on first use. Without it `c_api` calls the C API through
ctypes, with the same results.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tidemill_serving._shared.native_build.compiling import CompileError, NativeSources, find_library
from tidemill_serving.engine.base import Array, Signature
from tidemill_serving.engine.c_library import CLibrary, CLibraryError, Output
from tidemill_serving.engine.c_tensors import CTensors

SOURCES = NativeSources("serving", Path(__file__).resolve().with_name("native"))
_PLAIN_KINDS = "fiub"  # kinds of NumPy types with the buffer protocol (not bfloat16), without objects
_LEFT_TO_PYTHON = -1


_FUNCTIONS = (
    *("TF_AllocateTensor", "TF_DeleteTensor", "TF_TensorData", "TF_TensorType", "TF_NumDims", "TF_Dim"),
    *("TF_NewStatus", "TF_DeleteStatus", "TF_GetCode", "TF_Message", "TF_SessionRun"),
)


class _Functions(ctypes.Structure):
    """`Functions` of native/call.h."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in _FUNCTIONS)


class _Call(ctypes.Structure):
    """`Call` of native/call.h."""

    _fields_ = (
        ("functions", ctypes.POINTER(_Functions)),
        ("session", ctypes.c_void_p),
        ("inputs", ctypes.POINTER(Output)),
        ("input_types", ctypes.POINTER(ctypes.c_int)),
        ("num_inputs", ctypes.c_int64),
        ("outputs", ctypes.POINTER(Output)),
        ("output_types", ctypes.POINTER(ctypes.c_int)),
        ("output_dtypes", ctypes.POINTER(ctypes.py_object)),
        ("num_outputs", ctypes.c_int64),
        ("empty", ctypes.py_object),
    )


class EngineLibrary:
    """The native library, loaded.

    Args:
        library: The C API that it calls.

    Attributes:
        source: ``wheel`` or ``compiled``.
        functions: Addresses of functions of the C API.

    Raises:
        ImportError: The library is not available for this machine.
    """

    def __init__(self, library: CLibrary) -> None:
        try:
            path, self.source = find_library(SOURCES)
            self.run: Any = ctypes.PyDLL(str(path)).tidemill_serving_run
        except (CompileError, OSError, AttributeError) as error:
            raise ImportError(f"no native calls: {error}") from error
        self.run.restype = ctypes.py_object
        self.run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object)
        self.functions = _Functions(
            *(ctypes.cast(getattr(library.functions, name), ctypes.c_void_p).value for name in _FUNCTIONS)
        )


class NativeCall:
    """One signature, ready to be run.

    Args:
        session: Address of the TF_Session.
        inputs: The signature's inputs in the graph.
        outputs: The signature's outputs in the graph.
        tensors: Converts arrays without the buffer protocol.
    """

    def __init__(
        self,
        native: EngineLibrary,
        session: int,
        signature: Signature,
        *,
        inputs: "ctypes.Array[Output]",
        outputs: "ctypes.Array[Output]",
        tensors: CTensors,
    ) -> None:
        self._tensors = tensors
        self._run = native.run
        self._dtypes = [spec.dtype if spec.dtype.kind in _PLAIN_KINDS else None for spec in signature.inputs.values()]
        input_types = [_number(spec.dtype, tensors) for spec in signature.inputs.values()]
        output_types = [_number(dtype, tensors) for dtype in signature.output_dtypes]
        self._types = (ctypes.c_int * len(input_types))(*input_types)
        self._call = _Call(
            ctypes.pointer(native.functions),
            session,
            inputs,
            self._types,
            len(inputs),
            outputs,
            (ctypes.c_int * len(output_types))(*output_types),
            (ctypes.py_object * len(output_types))(*signature.output_dtypes),
            len(outputs),
            np.empty,
        )
        self._address = ctypes.addressof(self._call)
        self._types_address = ctypes.addressof(self._types)

    def run(self, feeds: Sequence[Array], run_options: int) -> list[Array]:
        """Run on the arrays.

        Raises:
            CLibraryError: TensorFlow failed.
            RequestError: A feed or a result cannot be converted.
        """
        for feed, dtype in zip(feeds, self._dtypes, strict=True):
            if feed.dtype is not dtype or not feed.flags.c_contiguous:
                result = self._run_converted(feeds, run_options)
                break
        else:
            result = self._run(self._address, run_options, self._types_address, list(feeds))
        if type(result) is tuple:
            raise CLibraryError(result[0], result[1].decode(errors="replace"))
        for value in result:
            if type(value) is int:
                return self._arrays(result)
        return result

    def _run_converted(self, feeds: Sequence[Array], run_options: int) -> Any:
        """Run with tensors in place of feeds whose type is not the declared one or that have no buffer protocol."""
        types = (ctypes.c_int * len(feeds))(*self._types)
        prepared: list[Array | int] = []
        try:
            for index, (feed, dtype) in enumerate(zip(feeds, self._dtypes, strict=True)):
                if feed.dtype is dtype and feed.flags.c_contiguous:
                    prepared.append(feed)
                else:
                    types[index] = _LEFT_TO_PYTHON
                    prepared.append(self._tensors.tensor(feed))
        except BaseException:
            for value in prepared:
                if isinstance(value, int):
                    self._tensors.delete(value)
            raise
        return self._run(self._address, run_options, ctypes.addressof(types), prepared)

    def _arrays(self, results: list[Any]) -> list[Array]:
        """Convert the results that the library returned as tensor addresses instead of arrays."""
        try:
            return [self._tensors.array(value) if type(value) is int else value for value in results]
        finally:
            for value in results:
                if type(value) is int:
                    self._tensors.delete(value)


def _number(dtype: "np.dtype[Any]", tensors: CTensors) -> int:
    return tensors.number(dtype) if dtype.kind in _PLAIN_KINDS else _LEFT_TO_PYTHON
