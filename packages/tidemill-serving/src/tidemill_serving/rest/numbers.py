"""Write numbers, and arrays as JSON lists, exactly as TF Serving does.

A float has 6 significant digits if these read back as the same number, otherwise 9 (17 for a double). Whole numbers get
``.0``; NaN and Infinity are bare tokens. Lists are on one line, with items separated by ``, ``.
"""

import base64
import itertools
import json
import math
import operator
import struct

import numpy as np
import orjson

from tidemill_serving.engine import Array
from tidemill_serving.rest.native_library import KINDS, NativeJson, load_native_json

EXACT_TEXT_VALUES = 65_536
"""Without the native library, orjson writes float arrays larger than this: the shortest text that reads back as the
same number, not TF Serving's."""
_LOOP_VALUES = 48
_SINGLE_STEP = 2.0**-23
_SMALLEST_SINGLE = 2.0**-149
_HALF_BYTES = 2
NATIVE_KINDS = {np.dtype(name): KINDS[name] for name in ("float32", "float64", "int32", "int64")}
"""The types that the native library supports, with its numbers for them."""
VALUE_BYTES = 26
"""Bytes that the library may need for a value; see native/lists.h."""
LIST_BYTES = 4
"""Bytes that the library may need for a list in addition to its values."""
_SCRATCH_BYTES = 32_768
_scratch_array = np.empty(_SCRATCH_BYTES, np.uint8)
_scratch, _scratch_address = memoryview(_scratch_array), _scratch_array.ctypes.data


def list_text(array: Array, *, as_bytes: bool) -> bytes:
    """Return the JSON text of an array. Not thread-safe.

    Args:
        array: An array of any shape; a scalar becomes a bare value.
        as_bytes: Write strings as ``{"b64": ...}``.
    """
    if array.dtype.itemsize == _HALF_BYTES and array.dtype.kind not in "iu":
        array = array.astype(np.float32)  # exact: half and bfloat16 values are float32 values
    kind = NATIVE_KINDS.get(array.dtype)
    if kind is not None:
        library = load_native_json()
        if not isinstance(library, str):
            return _native_text(array, kind, library)
    return python_text(array, as_bytes=as_bytes).encode()


def _native_text(array: Array, kind: int, library: NativeJson) -> bytes:
    lists = 1 if array.ndim <= 1 else sum(itertools.accumulate(array.shape[:-1], operator.mul, initial=1))
    most = array.size * VALUE_BYTES + lists * LIST_BYTES
    shape = struct.pack(f"{array.ndim}q", *array.shape)
    if most <= _SCRATCH_BYTES:
        write = library.held.tidemill_json_write_lists
        return _scratch[: write(array.tobytes(), kind, shape, array.ndim, _scratch_address)].tobytes()
    text = np.empty(most, np.uint8)
    values = np.ascontiguousarray(array)
    size = library.functions(most).tidemill_json_write_lists(
        values.ctypes.data, kind, shape, array.ndim, text.ctypes.data
    )
    return text[:size].tobytes()


def python_text(array: Array, *, as_bytes: bool) -> str:
    """Return the same text without the native library; supports all types.

    Args:
        array: Of numbers, booleans or text.
        as_bytes: Whether text is written as ``{"b64": ...}``.

    Returns:
        JSON text.
    """
    kind = array.dtype.kind
    if kind in "iu":
        return str(array.tolist())
    if kind == "b":
        return str(array.tolist()).replace("T", "t").replace("F", "f")
    if kind == "O":
        return _nested([_string_text(value, as_bytes=as_bytes) for value in array.ravel()], array.shape)
    if array.size > EXACT_TEXT_VALUES and np.isfinite(array).all():
        return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return _nested(_float_texts(array.ravel()), array.shape)


def _nested(texts: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return texts[0]
    if len(shape) == 1:
        return "[" + ", ".join(texts) + "]"
    step = math.prod(shape[1:])
    return "[" + ", ".join(_nested(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])) + "]"


def _float_texts(values: Array) -> list[str]:
    is_single = values.dtype == np.float32
    if values.size <= _LOOP_VALUES or not is_single:
        return [_float_text(value, is_single=is_single) for value in values.tolist()]
    short = _reads_back_from_6_digits(values)
    numbers = values.tolist()
    return [
        _with_point(f"{number:.6g}" if is_short else f"{number:.9g}")
        for number, is_short in zip(numbers, short.tolist(), strict=True)
    ]


def _float_text(number: float, *, is_single: bool) -> str:
    text = f"{number:.6g}"
    back = float(text)
    if back != number and not (is_single and _same_single(back, number)):
        text = f"{number:.9g}" if is_single else f"{number:.17g}"
    return _with_point(text)


def _same_single(back: float, number: float) -> bool:
    """Return whether a nearby number rounds to a given float32; most are too far away to need the conversion."""
    if abs(back - number) > abs(number) * _SINGLE_STEP + _SMALLEST_SINGLE:
        return False
    return bool(np.float32(back) == number)


def _with_point(text: str) -> str:
    if "." in text or "e" in text:
        return text
    if text[-1].isdigit():
        return text + ".0"
    return {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]


def _reads_back_from_6_digits(values: Array) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return for each number whether its 6-digit decimal reads back as the same number; exact for float32."""
    with np.errstate(all="ignore"):
        wide = values.astype(np.float64)
        exponent = np.floor(np.log10(np.abs(wide)))
        scale = 10.0 ** (5 - exponent)
        back = np.rint(wide * scale) / scale
        same = np.asarray(back.astype(values.dtype) == values)
    return same | ~np.isfinite(wide) | (wide == 0)


def _string_text(value: bytes, *, as_bytes: bool) -> str:
    if not as_bytes:
        try:
            return json.dumps(value.decode("utf-8"), ensure_ascii=False)
        except UnicodeDecodeError:
            pass  # no text: bytes have a single JSON form
    return '{"b64": "' + base64.b64encode(value).decode() + '"}'
