"""Strict JSON: texts with one meaning for every parser are read, all others are refused."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.errors import AwsError
from tidemill.wire.protocols.parse_json import MAX_DEPTH, load_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(VALUES, st.booleans())
def test_a_document_is_read_as_it_was_written(value: Any, ascii_only: bool) -> None:
    assert load_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:0123456789eE+-.\\utrfalsn ', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    try:
        value = load_json(data)
    except AwsError as error:
        assert (error.code, error.status) == ("SerializationException", 400)
    else:
        assert json.loads(json.dumps(value, allow_nan=False)) == value


def test_nesting_is_read_to_the_limit_and_no_further() -> None:
    assert load_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(AwsError, match="deeper than 64"):
        load_json(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_brackets_inside_strings_are_no_nesting() -> None:
    text = "[{" * 500 + '\\"'
    assert load_json(json.dumps({"a": text, "b": [[]] * 100}).encode()) == {"a": text, "b": [[]] * 100}


def test_an_unclosed_string_of_brackets_ends_in_a_refusal() -> None:
    with pytest.raises(AwsError):
        load_json(b'{"a": "' + b"[" * 100_000)


def test_a_surrogate_pair_is_a_character() -> None:
    assert load_json(rb'"\ud83d\ude00"') == "\U0001f600"


@pytest.mark.parametrize("text", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1" * 41, "01", "1.", "'a'", ""])
def test_a_number_that_json_does_not_allow_is_refused(text: str) -> None:
    with pytest.raises(AwsError):
        load_json(text.encode())


def test_large_but_bounded_numbers_are_left_to_validation() -> None:
    assert load_json(b"9223372036854775808") == 2**63
    assert math.isclose(load_json(b"1e308"), 1e308)
