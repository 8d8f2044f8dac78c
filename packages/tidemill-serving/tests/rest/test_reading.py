"""Request bodies: the fast path and the general one read the same values, and both refuse irregular ones."""

import json
from typing import Any

import numpy as np
import pytest

from tidemill_serving.engine import Signature, TensorSpec
from tidemill_serving.errors import RequestError
from tidemill_serving.rest.json_text import parse
from tidemill_serving.rest.native_library import NativeJson, load_native_json
from tidemill_serving.rest.numeric import NumericReader
from tidemill_serving.rest.tensors import tensor

FLOAT = TensorSpec("x:0", np.dtype("float32"), "float", None)
INT8 = TensorSpec("x:0", np.dtype("int8"), "int8", None)
INT64 = TensorSpec("x:0", np.dtype("int64"), "int64", None)
BOOL = TensorSpec("x:0", np.dtype("bool"), "bool", None)
STRING = TensorSpec("x:0", np.dtype("object"), "string", None)


def reader(**inputs: TensorSpec) -> NumericReader:
    library = load_native_json()
    assert isinstance(library, NativeJson), library
    return NumericReader({"s": Signature("s", "predict", inputs, {})}, default="s", library=library)


def fast(value: Any, spec: TensorSpec) -> np.ndarray | None:
    read = reader(x=spec).read(json.dumps({"instances": value}).encode())
    return None if read is None else read.feeds[0]


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (2, 3), (4, 1, 5), (1, 28, 28, 3), (2, 2, 2, 2, 2, 2, 2, 2)])
def test_the_fast_path_reads_regular_arrays_of_any_shape(shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape)).reshape(shape)
    array = fast(value.tolist(), FLOAT)
    assert array is not None
    assert np.array_equal(array, value.astype(np.float32))


@pytest.mark.parametrize(
    "text",
    [
        '{"instances": [[1, 2], [3]]}',
        '{"instances": [[1, 2], 3]}',
        '{"instances": [[1, [2]]]}',
        '{"instances": []}',
        '{"instances": [[], []]}',
        '{"instances": [1, null]}',
        '{"instances": [true]}',
        '{"instances": ["1"]}',
        '{"instances": ["]", "["]}',
        '{"instances": [1], "inputs": [1]}',
        '{"instances": [1], "instances": [1]}',
        '{"instances": [1], "other": 1}',
        '{"instances": [1], "signature_name": 5}',
        '{"instances": [1], "signature_name": "unknown"}',
        '{"instances": [1], "signature_name": "\\u0073"}',
        '{"instances": {"x": [1]}}',
        '{"instances": [{"x": 1}, {"x": [1]}]}',
        '{"instances": [{"x": 1, "x": 1}]}',
        '{"instances": [{"x": 1}, 1]}',
        '{"instances": [{"y": 1}]}',
        '{"inputs": {}}',
        '{"instances": [01]}',
        '{"instances": [+1]}',
        '{"instances": [.5]}',
        '{"instances": [5.]}',
        '{"instances": [1e]}',
        '{"instances": [0x1]}',
        '{"instances": [1e400]}',
        '{"instances": [-NaN]}',
        '{"instances": [1,]}',
        '{"instances": [1]}x',
        '{"instances": [1]}\x00',
        '{"instances": [1] ',
        "[1, 2]",
        "[" * 2000,
        '{"instances": ' + "[" * 33 + "1" + "]" * 33 + "}",
        "",
    ],
)
def test_the_fast_path_declines_other_values(text: str) -> None:
    assert reader(x=FLOAT).read(text.encode()) is None


def test_the_fast_path_declines_floats_for_integers_and_numbers_out_of_range() -> None:
    assert fast([1.5], INT64) is None
    assert fast([200], INT8) is None
    assert fast([2**53 + 1], INT64).tolist() == [2**53 + 1]


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        (1, FLOAT, 1.0),
        ([1, 2.5], FLOAT, [1.0, 2.5]),
        ([2**63 - 1, -(2**63)], INT64, [2**63 - 1, -(2**63)]),
        ([[True], [False]], BOOL, [[True], [False]]),
        (["é", {"b64": "/w=="}], STRING, ["é".encode(), b"\xff"]),
        ([[], []], FLOAT, [[], []]),
    ],
)
def test_values_become_arrays(value: Any, spec: TensorSpec, expected: Any) -> None:
    array = tensor(value, spec)
    assert array.dtype == spec.dtype
    assert array.tolist() == expected


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (["a"], FLOAT, 'JSON Value: "a" Type: String is not of expected type: float'),
        ([1, True], FLOAT, "JSON Value: true Type: Bool is not of expected type: float"),
        ([[1, 2], [3, None]], FLOAT, "JSON Value: null Type: Null is not of expected type: float"),
        ([1.0], INT64, "JSON Value: 1.0 Type: Number is not of expected type: int64"),
        ([1, 200], INT8, "JSON Value: 200 Type: Number is not of expected type: int8"),
        ([2**63], INT64, "JSON Value: 9223372036854775808 Type: Number is not of expected type: int64"),
        ([1], BOOL, "JSON Value: 1 Type: Number is not of expected type: bool"),
        ([1], STRING, "JSON Value: 1 Type: Number is not of expected type: string"),
        ([{"b64": "%"}], STRING, "Unable to base64 decode"),
        ([[1, 2], [3]], FLOAT, "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ([[1, 2], 3], FLOAT, "Expecting tensor size: 2 but got: 1"),
    ],
)
def test_the_error_names_the_mismatch_with_the_signature(value: Any, spec: TensorSpec, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        tensor(value, spec)
    assert refused.value.message.startswith(text)
    assert refused.value.http_status == 400


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "JSON Parse error: The document is empty"),
        (b" \n", "JSON Parse error: The document is empty"),
        (b'{"a": inf}', "JSON Parse error: Invalid value. at offset: 6"),
        (b"[1 2]", "JSON Parse error: Missing a comma or ] after an array element. at offset: 3"),
        (b'{"a":1 "b":2}', "JSON Parse error: Missing a comma or } after an object member. at offset: 7"),
        (b'{"a" 1}', "JSON Parse error: Missing a colon after a name of object member. at offset: 5"),
        (b"{1:2}", "JSON Parse error: Missing a name for object member. at offset: 1"),
        (b'{"\xc3\xa9":1} x', "JSON Parse error: The document root must not be followed by other values. at offset: 9"),
        (b'["a', "JSON Parse error: Missing a closing quotation mark in string. at offset: 1"),
        (b'["\xff"]', "JSON Parse error: Invalid encoding in string. at offset: 2"),
        (b"[" * 65 + b"]" * 65, "JSON Parse error: nested 65 levels deep"),
        (b"[" * 100_000, "JSON Parse error: nested 100000 levels deep"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "JSON Parse error: nested 100 levels deep"),
        (b"[" + b"9" * 5000 + b"]", "JSON Parse error: Number too big to be stored in double. at offset: 1"),
        (b"[1, 1e400]", "JSON Parse error: Number too big to be stored in double. at offset: 4"),
        (b"\xef\xbb\xbf[1]", "JSON Parse error: Invalid value. at offset: 0"),
        ('["a"]'.encode("utf-16"), "JSON Parse error: Invalid encoding in string. at offset: 0"),
        (b'["\xc3\xa9", "\\ud83c"]', "JSON Parse error: The surrogate pair in string is invalid. at offset: 8"),
        (b'["\\udf0a\\ud83c"]', "JSON Parse error: The surrogate pair in string is invalid. at offset: 2"),
        (b'["\\ud83cx\\udf0a"]', "JSON Parse error: The surrogate pair in string is invalid. at offset: 2"),
        (b'{"[": "\\\\", "a": [1 2]}', "JSON Parse error: Missing a comma or ] after an array element. at offset: 20"),
    ],
)
def test_a_parse_error_has_reason_and_position(body: bytes, text: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse(body)
    assert refused.value.message.startswith(text)


def test_brackets_in_strings_do_not_count_as_depth() -> None:
    assert parse(json.dumps({"a": "[" * 1000}).encode()) == {"a": "[" * 1000}
    assert parse(json.dumps([[0]] * 1000).encode()) == [[0]] * 1000


def test_both_ways_of_parsing_agree_on_what_a_document_means() -> None:
    for text in (
        "[%s, 18446744073709551615, 18446744073709551616, -9223372036854775809, 1e308]" % ("1" * 40),
        r'{"a": 1, "a": 2, "b": "\ud83c\udf0a \\ud83c \u0000"}',
    ):
        with_nan = text[:-1] + (', "n": NaN}' if text[0] == "{" else ", NaN]")
        fast, slow = parse(text.encode()), parse(with_nan.encode())
        assert repr(slow).replace(", nan]", "]").replace(", 'n': nan}", "}") == repr(fast)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"instances": [1], "instances": [2]}', {"instances": [1]}),
        (b'{"inputs": [1], "signature_name": "a", "signature_name": "b"}', {"inputs": [1], "signature_name": "a"}),
        (b'{"instances": [{"x": 1}, {"x": 2, "x": 3}]}', {"instances": [{"x": 1}, {"x": 2}]}),
        (b'{"inputs": {"x": [1], "y": [2], "x": [NaN]}}', {"inputs": {"x": [1], "y": [2]}}),
        (b'{"examples": [{"x": 1}], "context": {"c": 1, "c": 2}}', {"examples": [{"x": 1}], "context": {"c": 1}}),
    ],
)
def test_the_first_of_equal_keys_is_used_as_in_tf_serving(body: bytes, expected: Any) -> None:
    assert parse(body) == expected
    assert parse(body, keep_integers=True) == expected


def test_integers_are_kept_for_integer_inputs() -> None:
    assert parse(b'{"a": [' + b"1" * 40 + b", 1.5]}", keep_integers=True) == {"a": [int("1" * 40), 1.5]}


def test_a_long_string_among_short_ones_does_not_cost_its_length_for_each() -> None:
    value = ["a" * 10_000_000] + ["b"] * 1_000_000  # an array of fixed-width text would take 40 terabytes
    with pytest.raises(RequestError, match="Type: String is not of expected type: float"):
        tensor(value, FLOAT)


def test_nan_and_infinity_are_numbers() -> None:
    assert str(parse(b"[NaN, Infinity, -Infinity]")) == "[nan, inf, -inf]"
