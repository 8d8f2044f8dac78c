"""The JSON of several predict requests at once: one native call reads all bodies, and one writes all answers.

A call into the native library costs about as much as reading a small body, so requests that share a run of the model
share these calls as well. `predict` reads the bodies that the native reader does not support, and writes all errors.
"""

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidemill_serving.engine import Array, Signature
from tidemill_serving.rest.native_library import KINDS, Input, NativeJson, NativeRequest
from tidemill_serving.rest.numbers import LIST_BYTES, NATIVE_KINDS, VALUE_BYTES
from tidemill_serving.rest.numeric import BYTES_KEY

_LEAST_VALUES = 16_384
_TEXT_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """The rows of several bodies.

    Attributes:
        feeds: One array per input of the signature, with the rows of all bodies that were read; None if there are no
            rows. The next batch reuses the memory.
        rows: Number of rows of each examined body; -1 if `predict` has to read the body.
        num_rows: Total number of rows.
    """

    feeds: list[Array] | None
    rows: list[int]
    num_rows: int
    row_form: bool


def reads_batches(signature: Signature) -> bool:
    """Return whether all inputs and the only output of a signature have types that the native library supports.

    Returns:
        False for one without a batch axis or with ``b64`` inputs.
    """
    if signature.json_fault is not None or not signature.batchable or BYTES_KEY in signature.inputs:
        return False
    outputs = [spec.dtype in NATIVE_KINDS for spec in signature.outputs.values()]
    return outputs == [True] and all(spec.dtype.name in KINDS for spec in signature.inputs.values())


class BatchJson:
    """Reads bodies for one signature, and writes the answers. Not thread-safe.

    Args:
        signature: A signature for which `reads_batches` is true.
    """

    def __init__(self, signature: Signature, *, library: NativeJson) -> None:
        self._library = library
        self._specs = list(signature.inputs.items())
        self._inputs = (Input * len(self._specs))()
        self._request = NativeRequest(self._inputs, len(self._specs), b"", 0)
        self._address = ctypes.addressof(self._request)
        for structure, (alias, spec) in zip(self._inputs, self._specs, strict=True):
            structure.name, structure.name_size = alias.encode(), len(alias.encode())
            structure.kind = KINDS[spec.dtype.name]
        self._values: list[Array] = []
        self._room = 0
        self._text = np.empty(_TEXT_BYTES, np.uint8)

    def read(self, bodies: Sequence[bytes], *, max_rows: int) -> ReadBatch:
        """Read bodies in order, up to ``max_rows`` rows in total, or a single body with more rows.

        Args:
            bodies: At least one body.
            max_rows: Maximum rows of the batch. Bodies after the limit are not examined.
        """
        count = len(bodies)
        sizes = [len(body) for body in bodies]
        self._make_room(sum(sizes) // 2 + count)
        rows = (ctypes.c_int64 * count)()
        looked_at = self._library.functions(sum(sizes)).tidemill_json_read_batch(
            (ctypes.c_char_p * count)(*bodies), (ctypes.c_int64 * count)(*sizes), count, max_rows, self._address, rows
        )
        found = rows[:looked_at]
        if max(found) < 0:
            return ReadBatch(None, found, 0, row_form=False)
        feeds = [self._feed(index) for index in range(len(self._values))]
        return ReadBatch(feeds, found, feeds[0].shape[0], self._request.row_form == 1)

    def write(self, array: Array, rows: Sequence[int], *, head: bytes, tail: bytes) -> list[bytes] | None:
        """Return the text of each request's rows of an output.

        Args:
            rows: Number of rows of each request; their sum is the number of rows of the array.
            head: Beginning of each text, before the list of its rows.
            tail: End of each text, which replaces the closing bracket of the list.

        Returns:
            One text per request; None if the output has another number of rows, or a type that the library does not
            support.
        """
        kind = NATIVE_KINDS.get(array.dtype)
        if kind is None or not array.ndim or array.shape[0] != sum(rows):
            return None
        count = len(rows)
        most = array.size * VALUE_BYTES + math.prod(array.shape[:-1]) * LIST_BYTES
        most += count * (len(head) + len(tail) + LIST_BYTES)
        if most > len(self._text):
            self._text = np.empty(most, np.uint8)
        values = np.ascontiguousarray(array)
        ends = (ctypes.c_int64 * count)()
        write = self._library.functions(most).tidemill_json_write_batch
        write(
            *(values.ctypes.data, kind, struct.pack(f"{array.ndim}q", *array.shape), array.ndim),
            *((ctypes.c_int64 * count)(*rows), count, head, tail, self._text.ctypes.data, ends),
        )
        text = memoryview(self._text)
        begin = 0
        texts: list[bytes] = []
        for end in ends:
            texts.append(text[begin:end].tobytes())
            begin = end
        return texts

    def _feed(self, index: int) -> Array:
        structure = self._inputs[index]
        shape = structure.shape[: structure.rank]
        return self._values[index][: math.prod(shape)].reshape(shape)

    def _make_room(self, values: int) -> None:
        if values > self._room:
            self._room = max(values, _LEAST_VALUES)
            self._values = [np.empty(self._room, spec.dtype) for _alias, spec in self._specs]
        for structure, array in zip(self._inputs, self._values, strict=True):
            structure.values = array.ctypes.data
