"""Numbers and lists in the text that TF Serving writes."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_serving.rest import numbers
from tidemill_serving.rest.numbers import EXACT_TEXT_VALUES, python_text


@pytest.fixture(params=["native", "Python"], autouse=True)
def _writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with the native library, and without."""
    if request.param == "Python":
        monkeypatch.setattr(numbers, "load_native_json", lambda: "there is none")


def list_text(array: np.ndarray, *, as_bytes: bool) -> str:
    return numbers.list_text(array, as_bytes=as_bytes).decode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.5, "5.5"),
        (4, "4.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1 / 3, "0.333333343"),
        (123456, "123456.0"),
        (123456789, "123456792.0"),
        (1e6, "1e+06"),
        (1e-7, "1e-07"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_a_float_has_6_digits_if_they_read_back_else_9(value: float, text: str) -> None:
    assert list_text(np.array([value], np.float32), as_bytes=False) == f"[{text}]"
    many = np.full(100, value, np.float32)
    assert list_text(many, as_bytes=False) == "[" + ", ".join([text] * 100) + "]"


def test_long_lists_are_written_like_short_ones() -> None:
    random = np.random.default_rng(7)
    values = np.concatenate(
        [
            random.random(500),
            random.random(500).round(5),
            10.0 ** random.integers(-30, 30, 500),
            random.integers(0, 10**7, 500),
        ]
    ).astype(np.float32)
    one_by_one = [list_text(values[index : index + 1], as_bytes=False)[1:-1] for index in range(values.size)]
    assert list_text(values, as_bytes=False)[1:-1].split(", ") == one_by_one
    assert np.array_equal(np.array(json.loads(list_text(values, as_bytes=False)), np.float32), values)


def test_a_double_has_6_digits_if_they_read_back_else_17() -> None:
    assert list_text(np.array([0.1, 1 / 3, 2.0]), as_bytes=False) == "[0.1, 0.33333333333333331, 2.0]"


def test_very_long_lists_read_back_as_the_same_numbers() -> None:
    values = np.random.default_rng(1).random((2, EXACT_TEXT_VALUES), dtype=np.float32)
    assert np.array_equal(np.array(json.loads(list_text(values, as_bytes=False)), np.float32), values)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([[1, -2], [3, 4]], np.int64), "[[1, -2], [3, 4]]"),
        (np.array([True, False]), "[true, false]"),
        (np.array(7, np.uint8), "7"),
        (np.array(0.5, np.float32), "0.5"),
        (np.zeros((2, 0), np.float32), "[[], []]"),
        (np.array([0.1], np.float16), "[0.0999755859]"),
        (np.array([b'a"b\n', "é".encode()], dtype=object), '["a\\"b\\n", "é"]'),
        (np.array([b"\xff"], dtype=object), '[{"b64": "/w=="}]'),
    ],
)
def test_every_type_is_written_in_its_form(array: np.ndarray, text: str) -> None:
    assert list_text(array, as_bytes=False) == text


def test_strings_of_a_bytes_output_are_base64() -> None:
    assert list_text(np.array([b"abc"], dtype=object), as_bytes=True) == '[{"b64": "YWJj"}]'


FLOATS = st.floats(width=32) | st.integers(-(2**24), 2**24).map(float) | st.integers(-149, 127).map(lambda n: 2.0**n)
DOUBLES = st.floats() | st.decimals(-99, 99, places=3).map(float) | st.integers(-1074, 1023).map(lambda n: 2.0**n)
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(st.data(), SHAPES)
@settings(max_examples=50, deadline=None)
def test_both_writers_write_the_same(data: st.DataObject, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    for dtype, values in (
        (np.float32, FLOATS),
        (np.float64, DOUBLES),
        (np.int32, st.integers(-(2**31), 2**31 - 1)),
        (np.int64, st.integers(-(2**63), 2**63 - 1)),
    ):
        array = np.array(data.draw(st.lists(values, min_size=size, max_size=size)), dtype).reshape(shape)
        assert list_text(array, as_bytes=False) == python_text(array, as_bytes=False)
        assert list_text(array.T, as_bytes=False) == python_text(array.T, as_bytes=False)


def test_both_writers_write_the_same_for_any_bits() -> None:
    bits = np.random.default_rng(3).bytes(80_000)
    for dtype in (np.float32, np.float64):
        array = np.frombuffer(bits, dtype)
        assert list_text(array, as_bytes=False) == python_text(array, as_bytes=False)
