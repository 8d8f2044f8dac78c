"""Invocations with arrays in NumPy's format, and answers in it."""

import io
from typing import Any

import numpy as np
import pytest

Server = Any  # a ServerProcess of conftest.py
NPY = "application/x-npy"


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asanyarray(array), allow_pickle=True)
    return buffer.getvalue()


def invoke(server: Server, body: bytes, model: str = "half_plus", content_type: str = NPY, **headers: str) -> Any:
    return server.invoke(body, content_type, X_Amzn_SageMaker_Custom_Attributes=f"tfs-model-name={model}", **headers)


@pytest.mark.parametrize("dtype", ["float32", "float64", ">f4", "float16", "int64", "uint8"])
def test_an_array_is_the_rows_of_the_only_input(server: Server, dtype: str) -> None:
    answer = invoke(server, npy(np.array([1, 2, 5], dtype)))
    assert (answer.status, answer.json) == (200, {"predictions": [3.5, 4.0, 5.5]})
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("content_type", "body"), [(NPY, npy([1.0, 2.0])), ("application/json", b'{"inputs": [1, 2]}')]
)
def test_the_answer_is_an_array_if_that_is_accepted(server: Server, content_type: str, body: bytes) -> None:
    answer = invoke(server, body, content_type=content_type, Accept=f"{NPY}, application/json")
    assert (answer.status, answer.headers["content-type"]) == (200, NPY)
    array = np.load(io.BytesIO(answer.body))
    assert (array.dtype, array.tolist()) == (np.float32, [3.5, 4.0])


def test_arrays_of_any_layout_and_of_text_are_read(server: Server, models: Any) -> None:
    saved = np.load(models / "mlp.npz")
    answer = invoke(server, npy(np.asfortranarray(saved["rows"])), "mlp", Accept=NPY)
    np.testing.assert_allclose(np.load(io.BytesIO(answer.body)), saved["answers"], rtol=1e-5)
    for words in (np.array(["flow", "no"]), np.array([b"flow", b"no"])):
        assert invoke(server, npy(words), "words").json == {"predictions": [1, -1]}


def header(text: str, content: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + content


def described(descr: str, shape: str) -> str:
    return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n"


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"", 400, "the body is no array in NumPy's format: "),
        (header(described("<f4", "(1048576, 1048576, 0)")), 400, "needs more than the 1073741824 bytes allowed"),
        (npy([1.0])[:-1], 400, "the body is no array in NumPy's format: 7 bytes follow the header"),
        (npy([1.0]) + b"x", 400, "the body is no array in NumPy's format: 9 bytes follow the header"),
        (b"\x93NUMPY\x03\x00" + npy([1.0])[8:], 400, "the body is no array in NumPy's format: version (3, 0)"),
        (header("("), 400, "the body is no array in NumPy's format: "),
        (header(described("<f4", "(1000000000000,)")), 400, "the body is no array in NumPy's format: 0 bytes follow"),
        (header(described("<f4", "(-1,)")), 400, "the body is no array in NumPy's format: 0 bytes follow"),
        (header(described("<U0", "(1000000000000,)")), 400, "the body is no array in NumPy's format: 0 bytes follow"),
        (header(described("<f4", f"(0, {2**64})")), 400, "bytes allowed"),
        (npy(np.array([{}], object)), 415, "arrays of Python objects are refused: send numbers or text"),
        (npy(["a"]), 400, "input x: the array of <U1 is not of expected type: float"),
        (npy(np.datetime64("2026-01-01")), 400, "is not of expected type: float"),
        (npy([1j]), 400, "input x: the array of complex128 is not of expected type: float"),
        (npy([[1.0]]), 200, ""),  # the model takes other ranks than it declares
    ],
)
def test_a_body_that_is_no_array_for_the_input_is_refused(server: Server, body: bytes, status: int, text: str) -> None:
    answer = invoke(server, body)
    assert answer.status == status, answer.body
    assert not text or text in answer.error


def test_text_that_is_none_is_refused(server: Server) -> None:
    for content in (b"\xff\xff\xff\x7f", b"\x00\xd8\x00\x00"):  # beyond Unicode, and half a surrogate pair
        answer = invoke(server, header(described("<U1", "(1,)"), content), "words")
        assert (answer.status, "an element that is no text" in answer.error) == (400, True)


def test_what_arrays_cannot_hold_is_refused(server: Server) -> None:
    several = invoke(server, npy([1.0]), "two_inputs")
    assert (several.status, "the signature serving_default has the inputs a,b" in several.error) == (400, True)
    body = b'{"inputs": {"a": [2], "b": [[3, 4]]}}'
    outputs = invoke(server, body, "two_inputs", "application/json", Accept=NPY)
    assert (outputs.status, "returns scaled: float, total: int32; accept" in outputs.error) == (406, True)
    attributes = "tfs-model-name=tensorflow_1,tfs-method=regress"
    regress = server.invoke(npy([1.0]), NPY, X_Amzn_SageMaker_Custom_Attributes=attributes)
    assert (regress.status, regress.error) == (415, f"Unsupported Media Type: {NPY}")
