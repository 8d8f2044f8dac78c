"""Convert arrays to TF_Tensors and back.

Both directions copy: TensorFlow requires buffers aligned to 64 bytes, which NumPy's are not, and may keep a tensor
after the run that it was fed to. Strings are passed as a TensorProto, which creates a tensor that owns them.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidemill_serving.engine.base import Array
from tidemill_serving.engine.c_library import CLibrary
from tidemill_serving.engine.element_types import element_type
from tidemill_serving.engine.wheel import Wheel
from tidemill_serving.errors import failed_precondition, invalid

_STRING = np.dtype(object)
_STRING_BYTES = 24  # sizeof(TF_TString)


class CTensors:
    """Converts between arrays and the tensors of a library.

    Args:
        library: The C API.
        wheel: Message classes of the wheel; strings are passed as a TensorProto.
    """

    def __init__(self, library: CLibrary, wheel: Wheel) -> None:
        self._library = library
        self._c = library.functions
        self._tensor_proto = wheel.tensor.TensorProto
        self._data_type = wheel.types.DataType
        self._types: dict[int, np.dtype[Any]] = {}
        self._numbers: dict[np.dtype[Any], int] = {}

    def tensor(self, array: Array) -> int:
        """Return a new TF_Tensor with the content of an array. The caller deletes it.

        Raises:
            RequestError: INVALID_ARGUMENT, TensorFlow has no such type, or an object is not a string.
            CLibraryError: TensorFlow refused the strings.
        """
        if array.dtype is _STRING:
            return self._string_tensor(array)
        tensor = self._allocate(self.number(array.dtype), array.shape, array.nbytes)
        if array.nbytes:
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            ctypes.memmove(self._c.TF_TensorData(tensor), array.ctypes.data, array.nbytes)
        return tensor

    def array(self, tensor: int) -> Array:
        """Return a new array with the content of a TF_Tensor.

        Raises:
            RequestError: FAILED_PRECONDITION, NumPy has no such type.
        """
        functions = self._c
        shape = [functions.TF_Dim(tensor, axis) for axis in range(functions.TF_NumDims(tensor))]
        number = functions.TF_TensorType(tensor)
        dtype = self._types.get(number) or self._type(number)
        if dtype is _STRING:
            return self._string_array(tensor, shape)
        array: Array = np.empty(shape, dtype)
        if array.nbytes:
            ctypes.memmove(array.ctypes.data, functions.TF_TensorData(tensor), array.nbytes)
        return array

    def delete(self, tensor: int) -> None:
        """Free a TF_Tensor.

        Args:
            tensor: Address of the TF_Tensor; it is invalid afterwards.
        """
        self._c.TF_DeleteTensor(tensor)

    def number(self, dtype: "np.dtype[Any]") -> int:
        """Return the number of a type in TensorFlow's DataType.

        Raises:
            RequestError: INVALID_ARGUMENT, TensorFlow has no such type.
        """
        if (found := self._numbers.get(dtype)) is not None:
            return found
        for number in self._data_type.values():
            known = element_type(self._data_type.Name(number))
            if known is not None and known == dtype:  # NumPy takes None for float64
                self._numbers[dtype] = number
                return int(number)
        raise invalid(f"an array of the type {dtype} cannot be fed")

    def _allocate(self, number: int, shape: Sequence[int], size_bytes: int) -> int:
        sizes = (ctypes.c_int64 * len(shape))(*shape)
        tensor: int | None = self._c.TF_AllocateTensor(number, sizes, len(shape), size_bytes)
        if tensor is None:
            raise MemoryError(f"no memory for a tensor of {size_bytes} bytes")
        return tensor

    def _string_tensor(self, array: Array) -> int:
        values = [value.encode() if isinstance(value, str) else value for value in array.ravel().tolist()]
        proto = self._tensor_proto(dtype=self._data_type.Value("DT_STRING"))
        for size in array.shape:
            proto.tensor_shape.dim.add(size=size)
        try:
            proto.string_val.extend(values)
        except TypeError as error:
            raise invalid(f"an element of a string tensor is no string: {error}") from error
        content = proto.SerializeToString()
        buffer = self._c.TF_NewBufferFromString(content, len(content))
        tensor = self._allocate(self._data_type.Value("DT_INT32"), (), 4)  # a placeholder that the strings replace
        try:
            with self._library.status() as status:
                self._c.TF_TensorFromProto(buffer, tensor, status)
        except BaseException:
            self._c.TF_DeleteTensor(tensor)
            raise
        finally:
            self._c.TF_DeleteBuffer(buffer)
        return tensor

    def _string_array(self, tensor: int, shape: Sequence[int]) -> Array:
        address_of, size_of = self._c.TF_StringGetDataPointer, self._c.TF_StringGetSize
        array: Array = np.empty(shape, dtype=object)
        begin = self._c.TF_TensorData(tensor) if array.size else 0
        strings = range(begin, begin + array.size * _STRING_BYTES, _STRING_BYTES)
        # Element by element: assigning a list with one ``bytes`` element to a slice would treat it as a sequence.
        for index, string in enumerate(strings):
            array.flat[index] = ctypes.string_at(address_of(string), size_of(string))
        return array

    def _type(self, number: int) -> "np.dtype[Any]":
        name = self._data_type.Name(number) if number in self._data_type.values() else f"DT_{number}"
        dtype = element_type(name)
        if dtype is None:
            raise failed_precondition(f"The model returned a tensor of the type {name}, which no array can hold")
        self._types[number] = dtype
        return dtype
