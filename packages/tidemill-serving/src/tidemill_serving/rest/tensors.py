"""Convert JSON values to arrays by TF Serving's rules, with its error messages.

NumPy converts regular lists of only numbers or only booleans. Everything else is converted value by value, which finds
the first invalid one: NumPy would convert a boolean among numbers to 0 or 1, and reserve the length of the longest
string for each value.
"""

import base64
import binascii
import math
from typing import Any

import numpy as np

from tidemill_serving.engine import Array, TensorSpec
from tidemill_serving.errors import RequestError, invalid
from tidemill_serving.rest.json_text import json_type, shown

_BYTES_KEY = "b64"
FLOAT_TYPES = frozenset({"float", "double", "half", "bfloat16"})
"""TensorFlow's names of the types that accept any JSON number."""
_MAX_RANK = 60
_NUMBERS = frozenset({int, float})
_BOOLEANS = frozenset({bool})


def is_bytes_object(value: Any) -> bool:
    """Return whether a value is ``{"b64": "..."}``, the form of binary data.

    Args:
        value: A parsed value of JSON.
    """
    return isinstance(value, dict) and len(value) == 1 and _BYTES_KEY in value


def tensor(value: Any, spec: TensorSpec) -> Array:
    """Convert one JSON value to an array.

    Raises:
        RequestError: INVALID_ARGUMENT, the value does not fit the type or shape of ``spec``.
    """
    array = _quickly(value, spec)
    if array is not None:
        return array
    shape = _shape_of(value)
    flat: list[Any] = []
    _walk(value, 0, shape, spec, flat)
    return _assemble(flat, shape, spec)


def tensor_of_rows(rows: list[Any], spec: TensorSpec, *, key: str | None = None) -> Array:
    """Convert a list of rows to an array; an error names the row (and the key, if rows are objects).

    Raises:
        RequestError: INVALID_ARGUMENT, ``Failed to process element: I of 'instances' list. Error: ...``.
    """
    array = _quickly(rows, spec)
    if array is not None:
        return array
    shape = _shape_of(rows[0])
    flat: list[Any] = []
    for index, row in enumerate(rows):
        if key is None and isinstance(row, dict) and not is_bytes_object(row):
            raise invalid(f"Expecting value/list but got object: element {index} of 'instances' is {shown(row)}")
        try:
            _walk_row(row, shape, spec, flat)
        except RequestError as error:
            raise failed_row(index, error, key=key) from error
    return _assemble(flat, (len(rows), *shape), spec)


def failed_row(index: int, error: RequestError, *, key: str | None = None) -> RequestError:
    """Return the error of one row (and of one of its keys, if rows are objects).

    Args:
        index: Number of the row, from 0.
        key: Name of the row's input, if rows are objects.

    Returns:
        INVALID_ARGUMENT.
    """
    where = f"element: {index}" + (f" key: {key}" if key is not None else "")
    return invalid(f"Failed to process {where} of 'instances' list. Error: {error.code.name}: {error.message}")


def cast(array: Array, spec: TensorSpec) -> Array | None:
    """Cast numbers from JSON to the dtype of an input; None for a value that has to be checked first.

    Args:
        array: Any shape; numbers as NumPy parsed them.
        spec: The input of the signature.
    """
    kind = array.dtype.kind
    if spec.type_name in FLOAT_TYPES:
        # By way of double, as single numbers are: then large integers are rounded in the same way on all paths.
        return array.astype(np.float64, copy=False).astype(spec.dtype, copy=False) if kind in "fiu" else None
    if spec.dtype.kind in "iu":
        return array.astype(spec.dtype) if kind in "iu" and _within(array, spec.dtype) else None
    if spec.dtype.kind == "b":
        return array if kind == "b" else None
    return None


def _quickly(value: Any, spec: TensorSpec) -> Array | None:
    if spec.dtype.kind == "O" or not _leaf_types(value) <= (_BOOLEANS if spec.dtype.kind == "b" else _NUMBERS):
        return None
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError):  # ragged, or deeper than NumPy supports
        return None
    return cast(array, spec) if array.size and array.ndim <= _MAX_RANK else None


def _leaf_types(value: Any) -> set[type]:
    """Return the types of the values in the innermost lists."""
    if not isinstance(value, list):
        return {type(value)}
    if value and isinstance(value[0], list):
        return set().union(*map(_leaf_types, value))
    return set(map(type, value))


def _within(array: Array, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return int(array.min()) >= limits.min and int(array.max()) <= limits.max


def _shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape given by the first elements; deeper lists must agree with it."""
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        if len(shape) > _MAX_RANK:
            raise invalid(f"JSON Value: {shown(value)} is nested deeper than {_MAX_RANK} lists")
        if not value:
            break
        value = value[0]
    return tuple(shape)


def _walk_row(row: Any, shape: tuple[int, ...], spec: TensorSpec, flat: list[Any]) -> None:
    """Walk one row, which must have the shape of the first one."""
    own = _shape_of(row)
    _walk(row, 0, own, spec, flat)
    if own == shape:
        return
    if math.prod(own) != math.prod(shape):
        raise invalid(f"Expecting tensor size: {math.prod(shape)} but got: {math.prod(own)}")
    raise invalid(f"Expecting shape {_brackets(shape)} but got: {_brackets(own)}")


def _walk(value: Any, level: int, shape: tuple[int, ...], spec: TensorSpec, flat: list[Any]) -> None:
    if level == len(shape):
        flat.append(_scalar(value, spec))
        return
    if not isinstance(value, list):
        raise invalid(f"Expecting tensor size: {math.prod(shape[level:])} but got: 1 (JSON Value: {shown(value)})")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
        )
    for item in value:
        _walk(item, level + 1, shape, spec, flat)


def _scalar(value: Any, spec: TensorSpec) -> Any:
    if spec.type_name == "string":
        return string_value(value)
    wanted = (
        isinstance(value, bool)
        if spec.dtype.kind == "b"
        else isinstance(value, int) and not isinstance(value, bool) and _fits(value, spec.dtype)
        if spec.dtype.kind in "iu"
        else isinstance(value, int | float) and not isinstance(value, bool) and spec.type_name in FLOAT_TYPES
    )
    if wanted:
        return value
    raise invalid(f"JSON Value: {shown(value)} Type: {json_type(value)} is not of expected type: {spec.type_name}")


def string_value(value: Any) -> bytes:
    """Return a value of a string tensor.

    Args:
        value: A JSON string, or ``{"b64": ...}``.

    Returns:
        UTF-8 or the decoded bytes.

    Raises:
        RequestError: If it is neither, or the base64 is damaged.
    """
    if isinstance(value, str):
        return value.encode()
    if is_bytes_object(value) and isinstance(value[_BYTES_KEY], str):
        try:
            return base64.b64decode(value[_BYTES_KEY], validate=True)
        except (binascii.Error, ValueError) as error:
            raise invalid(f"Unable to base64 decode: {shown(value[_BYTES_KEY])}") from error
    raise invalid(f"JSON Value: {shown(value)} Type: {json_type(value)} is not of expected type: string")


def _fits(value: int, dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= value <= limits.max)


def _assemble(flat: list[Any], shape: tuple[int, ...], spec: TensorSpec) -> Array:
    if spec.type_name == "string":
        array = np.empty(len(flat), dtype=object)
        array[:] = flat
        return array.reshape(shape)
    return np.array(flat, dtype=spec.dtype).reshape(shape)


def _brackets(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
