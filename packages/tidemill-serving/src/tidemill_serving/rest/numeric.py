"""The fast path for numbers: a native parser writes the values of a predict body directly into the input arrays.

It only accepts valid bodies for signatures with numbers and booleans. `tidemill_serving.rest.predict` parses all other
bodies and reports their errors; for the accepted bodies it would return the same values.
"""

import ctypes
import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tidemill_serving.engine import Array, Signature, TensorSpec
from tidemill_serving.rest.native_library import KINDS, MAX_RANK, Input, NativeJson, NativeRequest
from tidemill_serving.rest.tensors import FLOAT_TYPES

_SCRATCH_BYTES = 32_768  # bodies up to this size are read into preallocated arrays
_READ, _OTHER_SIGNATURE = 0, 2
BYTES_KEY = "b64"
"""An object with only this key represents bytes, so Python reads signatures with an input of that name."""
_WORD_BYTES = 8


class PredictRequest(NamedTuple):
    """A parsed body: arrays in the order of the signature's inputs, and the form of the answer."""

    signature: Signature
    feeds: list[Array]
    row_form: bool


class NumericReader:
    """Reads predict bodies for one model: those of at most 32 KiB on one thread only, larger ones on any.

    Args:
        default: Name of the signature of bodies that name none.
    """

    def __init__(self, signatures: Mapping[str, Signature], *, default: str, library: NativeJson) -> None:
        self._library = library
        self._default = _Lane(b"", signatures.get(default))
        self._lanes = {name.encode(): _Lane(name.encode(), signature) for name, signature in signatures.items()}

    def read(self, body: bytes) -> PredictRequest | None:
        """Parse a body; return None if it has to be parsed in Python.

        Args:
            body: The request's body, of JSON.
        """
        lane = self._default
        read = self._library.functions(len(body)).tidemill_json_read_request
        target = lane.target(len(body))
        outcome = read(body, len(body), target.address)
        if outcome == _OTHER_SIGNATURE:
            begin, size = target.request.named_offset, target.request.named_size
            found = self._lanes.get(body[begin : begin + size])
            if found is None:
                return None
            lane = found
            target = lane.target(len(body))
            outcome = read(body, len(body), target.address)
        if outcome != _READ or lane.signature is None:
            return None
        return PredictRequest(lane.signature, target.arrays(), target.request.row_form == 1)


class _Lane:
    """Buffers for the bodies of one signature, by the signature's name in them."""

    def __init__(self, name: bytes, signature: Signature | None) -> None:
        self.name = name
        inputs = signature.inputs if signature is not None else {}
        dtypes = {alias: _read_dtype(spec) for alias, spec in inputs.items()}
        self._dtypes = {alias: dtype for alias, dtype in dtypes.items() if dtype is not None}
        has_json = signature is not None and signature.json_fault is None
        is_taken = has_json and len(self._dtypes) == len(inputs) > 0 and BYTES_KEY not in inputs
        specs = dict(inputs) if is_taken else {}
        self.signature = signature if is_taken else None
        self._specs = specs
        self._scratch: _Target | None = None

    def target(self, body_bytes: int) -> "_Target":
        """Return arrays with room for all values of a body."""
        if body_bytes > _SCRATCH_BYTES:
            return self._new_target(body_bytes, is_scratch=False)
        if self._scratch is None:
            self._scratch = self._new_target(_SCRATCH_BYTES, is_scratch=True)
        return self._scratch

    def _new_target(self, body_bytes: int, *, is_scratch: bool) -> "_Target":
        most = body_bytes // 2 + 1  # a value takes at least two bytes, including its separator
        inputs = [
            _InputTarget(alias, np.empty(most, self._dtypes[alias]), spec, is_scratch=is_scratch)
            for alias, spec in self._specs.items()
        ]
        return _Target(self.name, inputs)


class _Target:
    """Arrays for the values of one body, and the structure that the library fills."""

    def __init__(self, name: bytes, inputs: "list[_InputTarget]") -> None:
        self._inputs = inputs
        self._structures = (Input * len(inputs))()
        for structure, each in zip(self._structures, inputs, strict=True):
            structure.name, structure.name_size = each.name, len(each.name)
            structure.values, structure.kind = each.values.ctypes.data, KINDS[each.values.dtype.name]
            each.watch(structure)
        self.request = NativeRequest(self._structures, len(inputs), name, len(name))
        self.address = ctypes.addressof(self.request)

    def arrays(self) -> list[Array]:
        """Return the arrays that were read."""
        return [each.array() for each in self._inputs]


class _InputTarget:
    """The array of one input, at least as large as the values that are read into it."""

    def __init__(self, alias: str, values: Array, spec: TensorSpec, *, is_scratch: bool) -> None:
        self.name = alias.encode()
        self.values = values
        self._read_dtype = values.dtype
        self._dtype = spec.dtype
        self._is_copied = is_scratch or spec.dtype != values.dtype

    def watch(self, structure: Input) -> None:
        """Read the rank and the shape from a structure."""
        begin = Input.rank.offset  # type: ignore[attr-defined]
        self._found = memoryview(structure).cast("B")[begin : begin + _WORD_BYTES * (1 + MAX_RANK)].cast("q")

    def array(self) -> Array:
        """Return the values that were read."""
        found = self._found
        rank = found[0]
        shape = (found[1],) if rank == 1 else (found[1], found[2]) if rank == 2 else tuple(found[1 : 1 + rank])
        if self._is_copied:
            return np.ndarray(shape, self._read_dtype, self.values).astype(self._dtype)
        return self.values[: math.prod(shape)].reshape(shape)


def _read_dtype(spec: TensorSpec) -> "np.dtype[np.generic] | None":
    """Return the dtype in which the values of an input are read; None if Python has to read them."""
    if spec.dtype.name in KINDS:
        return spec.dtype
    return np.dtype(np.float64) if spec.type_name in FLOAT_TYPES else None
