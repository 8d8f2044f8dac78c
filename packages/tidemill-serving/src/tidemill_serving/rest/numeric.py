"""The fast lane for big numeric bodies: simdjson straight into a buffer.

It takes bodies of the form ``{"instances": <numbers>}`` or ``{"inputs": <numbers>}``, optionally with a signature name,
for a signature with one numeric input, and says None to everything else, which then goes the general way and gets its
error text there. simdjson flattens nested lists without looking whether they are ragged, so the shape comes from the
*bracket skeleton*: the text without its numbers must be exactly what a regular array of that shape would leave.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simdjson

from tidemill_serving.engine import Array, TensorSpec
from tidemill_serving.rest.tensors import FLOAT_TYPES, cast

__all__ = ["MIN_BYTES", "NumericBody", "read_numeric"]

MIN_BYTES = 256
"""Below that, orjson and NumPy are as fast."""
_DATA_KEYS = ("instances", "inputs")
_NOT_SKELETON = bytes(set(range(256)) - set(b"[],"))
_MAX_RANK = 8
# Its buffers are used again, which is safe because no document outlives `read_numeric`: requests are decoded by the
# event loop's thread alone.
_parser = simdjson.Parser()


@dataclass(frozen=True, slots=True)
class NumericBody:
    """A body read by the fast lane: which key held the data, the signature it named, and the data."""

    data_key: str
    signature_name: str | None
    array: Array


def read_numeric(body: bytes, spec_of: Callable[[str | None], TensorSpec | None]) -> NumericBody | None:
    """Read a body whose data is one regular array of numbers.

    Args:
        body: The request body.
        spec_of: Gives the only input of a signature named (or not named) by the body; None where the signature is
            unknown or has several inputs.

    Returns:
        None where the general way must look at the body.
    """
    shape = _regular_shape(body)
    if shape is None:
        return None
    try:
        document = _parser.parse(body)
    except (ValueError, RuntimeError):  # not JSON, or an integer beyond 64 bits
        return None
    keys = list(document.keys()) if isinstance(document, simdjson.Object) else []
    data_keys = [key for key in keys if key in _DATA_KEYS]
    name = document["signature_name"] if "signature_name" in keys else None
    if len(data_keys) != 1 or len(keys) > 1 + isinstance(name, str):
        return None
    spec = spec_of(name)
    data = document[data_keys[0]]
    array = _array(data, shape, spec) if spec is not None and isinstance(data, simdjson.Array) else None
    return NumericBody(data_keys[0], name, array) if array is not None else None


def _array(data: "simdjson.Array", shape: tuple[int, ...], spec: TensorSpec) -> Array | None:
    is_integer = spec.dtype.kind in "iu"
    if not is_integer and spec.type_name not in FLOAT_TYPES:
        return None
    try:
        buffer = data.as_buffer(of_type="i" if is_integer else "d")
    except (TypeError, ValueError, RuntimeError):  # a string, null, a boolean, a float for an integer
        return None
    numbers = np.frombuffer(buffer, dtype=np.int64 if is_integer else np.float64)
    return cast(numbers.reshape(shape), spec) if numbers.size == math.prod(shape) else None


def _regular_shape(body: bytes) -> tuple[int, ...] | None:
    """The shape of the only array in the text, or None where it is ragged, empty, or not alone."""
    first, last = body.find(b"["), body.rfind(b"]")
    if first < 0 or last < first:
        return None
    skeleton = body[first : last + 1].translate(None, _NOT_SKELETON)
    rank = len(skeleton) - len(skeleton.lstrip(b"["))
    if rank > _MAX_RANK:
        return None
    shape: list[int] = []
    unit = b""
    for level in range(rank):
        end = skeleton.find(b"]" * (level + 1), rank - 1 - level)  # its own bracket follows those of its last item
        inside = skeleton[rank - level : end + level]
        count = (len(inside) + 1) // (len(unit) + 1)
        unit = b"[" + ((unit + b",") * count)[:-1] + b"]"
        shape.insert(0, count)
    return tuple(shape) if unit == skeleton else None
