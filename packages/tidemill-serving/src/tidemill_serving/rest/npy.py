"""Arrays in NumPy's ``.npy`` format in place of JSON: a body with the only input, an answer with the only output.

Reading a large array costs almost nothing, while its JSON costs milliseconds. Arrays of Python objects are refused:
they are pickled, and unpickling can run any code.
"""

import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.lib import format as npy_format

from tidemill_serving.engine import Array, LoadedModel, TensorSpec
from tidemill_serving.errors import Code, RequestError, invalid
from tidemill_serving.messages.tensors import check_size
from tidemill_serving.rest.predict import PredictRequest, find_signature
from tidemill_serving.rest.tensors import cast

NPY_TYPE = b"application/x-npy"
_HEADERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_TEXT_KINDS = "SU"


def read_npy(body: bytes, model: LoadedModel) -> PredictRequest:
    """Read a body for the default signature, in which the array is the only input.

    Raises:
        RequestError: The body is no such array (400, or 415 for Python objects), or it does not fit the signature.
    """
    signature = find_signature({}, model)
    if len(signature.inputs) != 1:
        raise invalid(
            f"an array is one input, but the signature {signature.key} has the inputs {','.join(signature.inputs)}:"
            " send application/json"
        )
    ((name, spec),) = signature.inputs.items()
    return PredictRequest(signature, [_fitted(_array(body), spec, name=name)], True)


def answer_npy(request: PredictRequest, outputs: Sequence[Array]) -> bytes:
    """Return the only output of a run as an array.

    Raises:
        RequestError: 406, the signature has several outputs, or an output of strings.
    """
    if len(outputs) != 1 or outputs[0].dtype.kind == "O":
        listed = ", ".join(f"{alias}: {spec.type_name}" for alias, spec in request.signature.outputs.items())
        raise RequestError(
            Code.INVALID_ARGUMENT,
            f"application/x-npy holds one array of numbers, but the signature returns {listed}; accept"
            " application/json",
            http_status=406,
        )
    (array,) = outputs
    if array.dtype.kind == "V":  # bfloat16, which only NumPy with TensorFlow's extension can read
        array = array.astype(np.float32)
    buffer = io.BytesIO()
    npy_format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _array(body: bytes) -> Array:
    try:
        return _parsed(body)
    except RequestError:
        raise
    except Exception as error:  # NumPy parses the header as Python, which fails in many ways
        raise invalid(f"the body is no array in NumPy's format: {error}") from error


def _parsed(body: bytes) -> Array:
    stream = io.BytesIO(body)
    version = npy_format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} is not 1.0 or 2.0")
    shape, in_columns, dtype = _HEADERS[version](stream)
    if dtype.hasobject:
        raise RequestError(
            Code.INVALID_ARGUMENT, "arrays of Python objects are refused: send numbers or text", http_status=415
        )
    content = memoryview(body)[stream.tell() :]
    if min(shape, default=0) < 0 or not dtype.itemsize or math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"{len(content)} bytes follow the header, which declares {list(shape)} of {dtype}")
    check_size(shape, item_bytes=dtype.itemsize)
    # Only the bytes 0 and 1 are valid booleans.
    flat: Array = np.frombuffer(content, np.uint8 if dtype.kind == "b" else dtype) if content else np.empty(0, dtype)
    flat = flat != 0 if dtype.kind == "b" else flat
    return flat.reshape(shape, order="F" if in_columns else "C")


def _fitted(array: Array, spec: TensorSpec, *, name: str) -> Array:
    fitted: Array | None
    if spec.dtype.kind == "O":
        fitted = _strings(array) if array.dtype.kind in _TEXT_KINDS else None
    elif array.dtype == spec.dtype:
        fitted = array
    else:
        fitted = cast(array, spec) if array.size else np.empty(array.shape, spec.dtype)
    if fitted is None:
        raise invalid(
            f"input {name}: the array of {array.dtype} is not of expected type: {spec.type_name}, or has values out of"
            " its range"
        )
    return np.ascontiguousarray(fitted).reshape(array.shape)


def _strings(array: Array) -> Array:
    strings = np.empty(array.size, dtype=object)
    try:
        for index, text in enumerate(array.reshape(-1).tolist()):
            strings[index] = text.encode() if isinstance(text, str) else text
    except (ValueError, SystemError) as error:  # half a surrogate pair, or no character at all
        raise invalid(f"the array has an element that is no text: {error}") from error
    return strings.reshape(array.shape)
