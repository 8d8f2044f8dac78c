"""Bodies that are read together and answers that are written together, compared with single ones."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_serving.engine import Signature, TensorSpec
from tidemill_serving.rest.batch_json import BatchJson, reads_batches
from tidemill_serving.rest.native_library import NativeJson, load_native_json
from tidemill_serving.rest.numeric import NumericReader
from tidemill_serving.rest.predict import DEFAULT_SIGNATURE, PredictRequest, answer, answer_frame

PIECES = (b"", b"\xff", b"\0", *(bytes([code]) for code in b'[]{},:-.e"01 '))


def spec(dtype: str, *shape: int) -> TensorSpec:
    return TensorSpec("x:0", np.dtype(dtype), {"float32": "float", "float64": "double"}.get(dtype, dtype), shape)


def signature(inputs: dict[str, TensorSpec], output: str = "float32") -> Signature:
    return Signature(DEFAULT_SIGNATURE, "predict", inputs, {"y": spec(output, -1)})


LIBRARY = load_native_json()
assert isinstance(LIBRARY, NativeJson), LIBRARY
SIGNATURES = {
    "one": signature({"x": spec("float32", -1, -1)}),
    "two": signature({"a": spec("int8", -1), "b": spec("float64", -1, -1)}),
}
READERS = {
    name: NumericReader({DEFAULT_SIGNATURE: each}, default=DEFAULT_SIGNATURE, library=LIBRARY)
    for name, each in SIGNATURES.items()
}
BATCHES = {name: BatchJson(each, library=LIBRARY) for name, each in SIGNATURES.items()}


@st.composite
def bodies(draw: st.DrawFn, name: str) -> bytes:
    """Draw a body of one to five rows, usually two values wide, and sometimes damaged."""
    rows, width = draw(st.integers(1, 5)), draw(st.sampled_from((2, 2, 2, 2, 3, 1)))
    values = [[draw(st.sampled_from((0, 1, -2.5, 1e30, 7))) for _ in range(width)] for _ in range(rows)]
    numbers = [draw(st.integers(-128, 127)) for _ in range(rows)]
    columns: Any = {"x": values} if name == "one" else {"a": numbers, "b": values}
    if draw(st.sampled_from((True, True, True, False))):
        document = {"instances": [{key: column[row] for key, column in columns.items()} for row in range(rows)]}
    else:
        document = {"inputs": columns}
    text = bytearray(json.dumps(document).encode())
    if draw(st.sampled_from((True, False, False, False))):
        place = draw(st.integers(0, len(text)))
        text[place : place + draw(st.integers(0, 3))] = draw(st.sampled_from(PIECES))
    return bytes(text)


@pytest.mark.parametrize("name", SIGNATURES)
@given(data=st.data(), max_rows=st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_requests_read_together_equal_requests_read_one_by_one(name: str, data: st.DataObject, max_rows: int) -> None:
    texts = data.draw(st.lists(bodies(name), min_size=1, max_size=6))
    batch = BATCHES[name].read(texts, max_rows=max_rows)
    alone = [READERS[name].read(text) for text in texts]
    begin, form = 0, None
    for rows, read in zip(batch.rows, alone, strict=False):
        if rows < 0:
            assert read is None or form not in (None, (read.row_form, [each.shape[1:] for each in read.feeds]))
            continue
        assert read is not None
        form = (read.row_form, [each.shape[1:] for each in read.feeds])
        assert batch.row_form == read.row_form
        assert batch.feeds is not None
        for joined, feed in zip(batch.feeds, read.feeds, strict=True):
            assert joined.dtype == feed.dtype
            assert joined[begin : begin + rows].tolist() == feed.tolist()
        begin += rows
    assert batch.num_rows == begin == (0 if batch.feeds is None else len(batch.feeds[0]))
    taken = [rows for rows in batch.rows if rows > 0]
    assert begin <= max_rows or len(taken) == 1
    if len(batch.rows) < len(texts):
        left = alone[len(batch.rows)]
        assert left is not None
        assert begin + len(left.feeds[0]) > max_rows


@given(
    dtype=st.sampled_from(("float32", "float64", "int32", "int64")),
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    shape=st.lists(st.integers(0, 3), max_size=3),
    row_form=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_answers_written_together_equal_answers_written_one_by_one(
    dtype: str, rows: list[int], shape: list[int], row_form: bool
) -> None:
    of_output = signature({"x": spec("float32", -1)}, dtype)
    values = np.random.default_rng(len(rows)).normal(size=(sum(rows), *shape)) * 1000
    array = values.astype(dtype)
    head, tail = answer_frame(row_form=row_form)
    texts = BatchJson(of_output, library=LIBRARY).write(array, rows, head=head, tail=tail)
    ends = np.cumsum(rows).tolist()
    alone = [
        answer(PredictRequest(of_output, [], row_form), [array[end - count : end]])
        for count, end in zip(rows, ends, strict=True)
    ]
    assert texts == alone


def test_large_answers_are_written_too() -> None:
    array = np.random.default_rng(0).random((8, 20_000), np.float32)
    head, tail = answer_frame(row_form=True)
    texts = BATCHES["one"].write(array, [3, 5], head=head, tail=tail)
    assert texts is not None
    assert [np.array(json.loads(text)["predictions"], np.float32).tolist() for text in texts] == [
        array[:3].tolist(),
        array[3:].tolist(),
    ]


def test_an_output_without_a_row_per_row_is_not_written() -> None:
    head, tail = answer_frame(row_form=True)
    for array in (np.zeros(5, np.float32), np.float32(1).reshape(()), np.zeros(4, np.float16)):
        assert BATCHES["one"].write(array, [2, 2], head=head, tail=tail) is None


@pytest.mark.parametrize(
    "other",
    [
        signature({"b64": spec("float32", -1)}),
        signature({"x": spec("object", -1)}),
        signature({"x": spec("float32", 1)}),
        signature({"x": spec("float16", -1)}),
        signature({"x": spec("float32", -1)}, "object"),
        replace(signature({"x": spec("float32", -1)}), json_fault="a reason"),
        Signature(DEFAULT_SIGNATURE, "predict", {"x": spec("float32", -1)}, dict.fromkeys("yz", spec("float32", -1))),
    ],
)
def test_other_signatures_use_the_general_implementation(other: Signature) -> None:
    assert reads_batches(SIGNATURES["one"])
    assert not reads_batches(other)
