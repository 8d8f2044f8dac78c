"""Convert arrays to TensorProto messages and back, by TensorFlow's rules for values that a message may omit."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tidemill_serving.engine import Array
from tidemill_serving.engine.element_types import element_type, short_name
from tidemill_serving.errors import invalid
from tidemill_serving.messages.definitions import messages

MAX_TENSOR_BYTES = 1024**3
"""Maximum size of a tensor in bytes; a small message can describe a large tensor, since one value may be repeated."""
_MAX_RANK = 60
_VARINT_BYTES = 5
_VALUE_FIELDS = {
    "DT_FLOAT": "float_val",
    "DT_DOUBLE": "double_val",
    "DT_HALF": "half_val",
    "DT_BFLOAT16": "half_val",
    "DT_INT8": "int_val",
    "DT_INT16": "int_val",
    "DT_INT32": "int_val",
    "DT_UINT8": "int_val",
    "DT_UINT16": "int_val",
    "DT_INT64": "int64_val",
    "DT_UINT32": "uint32_val",
    "DT_UINT64": "uint64_val",
    "DT_BOOL": "bool_val",
    "DT_STRING": "string_val",
    "DT_COMPLEX64": "scomplex_val",
    "DT_COMPLEX128": "dcomplex_val",
}
_STRINGS = "string_val"
_BITS = "half_val"
"""The field that holds 16-bit floats as the integers of their bits."""
_PAIRS = {"scomplex_val": np.float32, "dcomplex_val": np.float64}
"""The fields that hold complex numbers as pairs of real ones."""


def array_of(tensor: Any) -> Array:
    """Return the array of a TensorProto.

    As in TensorFlow, missing values repeat the last one; without any values, they are zeros or empty strings.

    Raises:
        RequestError: INVALID_ARGUMENT, the type cannot be served, or the values do not fit the shape.
    """
    dtype, field = _kind_of(tensor.dtype)
    shape = _shape_of(tensor.tensor_shape, item_bytes=dtype.itemsize)
    size = math.prod(shape)
    content = tensor.tensor_content
    flat = _content(content, dtype, size) if content else _values(getattr(tensor, field), field, dtype, size)
    if flat.size != size:
        raise invalid(f"Expecting tensor size: {size} but got: {flat.size}")
    return flat.reshape(shape)


def tensor_of(array: Array, type_name: str) -> Any:
    """Return an array as a TensorProto with typed values.

    Args:
        type_name: TensorFlow's short name of the type, e.g. ``float``.
    """
    tensor = messages().TensorProto()
    fill_tensor(tensor, array, type_name)
    return tensor


def fill_tensor(tensor: Any, array: Array, type_name: str, *, as_content: bool = False) -> None:
    """Write an array into an empty TensorProto.

    Args:
        tensor: The message.
        array: The values.
        type_name: TensorFlow's short name of the type, e.g. ``float``.
        as_content: Write the bytes of the values into ``tensor_content``; strings always go into typed values.
    """
    tensor.dtype, field = _number_of(type_name)
    dims = tensor.tensor_shape.dim
    for size in array.shape:
        dims.add().size = size
    flat = np.ascontiguousarray(array).reshape(-1)
    if field == _STRINGS:
        tensor.string_val.extend([each.encode() if isinstance(each, str) else bytes(each) for each in flat.tolist()])
    elif as_content:
        tensor.tensor_content = flat.tobytes()
    elif field == _BITS:
        tensor.half_val.extend(flat.view(np.uint16).tolist())
    elif field in _PAIRS:
        getattr(tensor, field).extend(flat.view(_PAIRS[field]).tolist())
    else:
        getattr(tensor, field).extend(flat.tolist())


@lru_cache(maxsize=64)
def _number_of(type_name: str) -> tuple[int, str]:
    """Return a type's number in DataType, by its short name, and the field of its values."""
    name = f"DT_{type_name.upper()}"
    return int(messages().DataType.Value(name)), _VALUE_FIELDS[name]


def type_number(type_name: str) -> int:
    """Return the number of a type in TensorFlow's DataType, by its short name.

    Args:
        type_name: Short name, e.g. ``float``.

    Raises:
        ValueError: If TensorFlow has no such type.
    """
    return int(messages().DataType.Value(f"DT_{type_name.upper()}"))


@lru_cache(maxsize=64)
def _kind_of(number: int) -> "tuple[np.dtype[Any], str]":
    """Return the NumPy type of a DataType number, and the field of its values."""
    try:
        name = str(messages().DataType.Name(number))
    except ValueError:
        name = f"DT_{number}"
    dtype, field = element_type(name), _VALUE_FIELDS.get(name)
    if dtype is None or field is None:
        raise invalid(f"tensor type: {short_name(name)} cannot be served")
    return dtype, field


def _shape_of(given: Any, *, item_bytes: int) -> tuple[int, ...]:
    if given.unknown_rank:
        raise invalid("a tensor of unknown rank has no values: give it a shape")
    shape = tuple([dim.size for dim in given.dim])
    if len(shape) > _MAX_RANK:
        raise invalid(f"a tensor of {len(shape)} dimensions cannot be served; at most {_MAX_RANK} are")
    if shape and min(shape) < 0:
        raise invalid(f"a tensor of the shape {list(shape)} has no values: no size may be negative")
    check_size(shape, item_bytes=item_bytes)
    return shape


def check_size(shape: Sequence[int], *, item_bytes: int) -> None:
    """Refuse a tensor that is too large, or would be if it were not empty: results may have its other sizes.

    Args:
        shape: Its dimensions.
        item_bytes: Bytes of each value.

    Raises:
        RequestError: INVALID_ARGUMENT, it exceeds `MAX_TENSOR_BYTES`.
    """
    # Count a zero as one: TensorFlow also refuses an empty shape whose other dimensions overflow.
    if math.prod([size or 1 for size in shape]) * item_bytes > MAX_TENSOR_BYTES:
        raise invalid(f"a tensor of the shape {list(shape)} needs more than the {MAX_TENSOR_BYTES} bytes allowed")


def _content(content: bytes, dtype: "np.dtype[Any]", size: int) -> Array:
    if dtype.kind == "O":
        return _string_content(content, size)
    if len(content) != size * dtype.itemsize:
        raise invalid(
            f"Expecting tensor size: {size} but got: {len(content)} bytes of tensor_content, where each value has"
            f" {dtype.itemsize}"
        )
    if dtype.kind == "b":
        return np.frombuffer(content, dtype=np.uint8) != 0  # only the bytes 0 and 1 are valid booleans
    return np.frombuffer(content, dtype=dtype)


def _string_content(content: bytes, size: int) -> Array:
    """Read strings as TensorFlow writes them into ``tensor_content``: all lengths, then all bytes."""
    lengths: list[int] = []
    position = 0
    for _ in range(min(size, len(content))):
        length, position = _varint(content, position)
        lengths.append(length)
    if len(lengths) != size or position + sum(lengths) != len(content):
        raise invalid(f"tensor_content does not hold {size} strings: their lengths, then their bytes")
    values = np.empty(size, dtype=object)
    for index, length in enumerate(lengths):
        values[index] = content[position : position + length]
        position += length
    return values


def _varint(content: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(content[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise invalid("tensor_content holds a length of a string that does not end")


def _values(given: Any, field: str, dtype: "np.dtype[Any]", size: int) -> Array:
    values: Array
    if field == _STRINGS:
        values = np.empty(len(given), dtype=object)
        values[:] = list(given)
        blank: Any = b""
    else:
        # Integers above the range of a small type lose their upper bits, as in TensorFlow.
        values = np.array(given, dtype=_wide(field, dtype))
        if field == _BITS:
            values = values.astype(np.uint16).view(dtype)
        elif field in _PAIRS:
            values = values[: values.size // 2 * 2].view(dtype)
        else:
            values = values.astype(dtype, copy=False)
        blank = 0
    if values.size >= size:
        return values
    if not values.size:
        return np.full(size, blank, dtype=dtype)
    return np.concatenate([values, np.repeat(values[-1:], size - values.size)])


def _wide(field: str, dtype: "np.dtype[Any]") -> Any:
    if field in (_BITS, "int_val"):
        return np.int32
    return _PAIRS.get(field, dtype)
