"""The native reader of predict bodies compared with the Python one, on the standard library's parser and orjson."""

import json
import random
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill_serving.engine import Signature, TensorSpec
from tidemill_serving.errors import RequestError
from tidemill_serving.rest.native_library import NativeJson, load_native_json
from tidemill_serving.rest.numeric import NumericReader
from tidemill_serving.rest.predict import DEFAULT_SIGNATURE, read_document

TYPE_NAMES = {"float16": "half", "float32": "float", "float64": "double"}
DTYPES = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "bool")},
    **{f"{sign}int{bits}": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
SPECS = {name: TensorSpec("x:0", dtype, TYPE_NAMES.get(name, name), None) for name, dtype in DTYPES.items()}
SIGNATURES = {
    **{name: Signature(name, "predict", {"x": spec}, {}) for name, spec in SPECS.items()},
    "mixed": Signature("mixed", "predict", {"b": SPECS["bool"], "é": SPECS["int64"], "x": SPECS["float32"]}, {}),
    DEFAULT_SIGNATURE: Signature(DEFAULT_SIGNATURE, "predict", {"x": SPECS["float32"]}, {}),
}
MODEL: Any = SimpleNamespace(signatures=SIGNATURES, unusable={})
SPACE = st.sampled_from(("", "", "", " ", "\n\t ", "\r\n"))
NUMBER = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@pytest.fixture(autouse=True, scope="module")
def _overflow_is_infinity() -> Any:
    with np.errstate(over="ignore", invalid="ignore"):  # as in the server
        yield


def new_reader() -> NumericReader:
    library = load_native_json()
    assert isinstance(library, NativeJson), library
    return NumericReader(SIGNATURES, default=DEFAULT_SIGNATURE, library=library)


READER = new_reader()


def native(body: bytes) -> Any:
    return READER.read(body)


def assert_both_read(body: bytes, *, taken: bool) -> None:
    """Check that both readers read the same, and that the native one reads a body completely or not at all."""
    read = native(body)
    assert taken is False or read is not None, body
    if read is None:
        return
    other = read_document(body, MODEL)
    assert read.signature is other.signature
    assert read.row_form == other.row_form
    for got, wanted in zip(read.feeds, other.feeds, strict=True):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes() or (got.dtype.kind in "fV" and equal_with_nan(got, wanted)), body


def equal_with_nan(got: np.ndarray, wanted: np.ndarray) -> bool:
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    same_sign = np.isnan(got) | (np.signbit(got) == np.signbit(wanted))
    return np.array_equal(got, wanted, equal_nan=True) and bool(same_sign.all())


@given(st.lists(NUMBER, min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_every_number_equals_pythons(texts: list[str]) -> None:
    texts = [text for text in texts if np.isfinite(float(text))] or ["0"]
    values = [float(text) if set(text) & set(".eE") else float(int(text)) for text in texts]
    body = '{"signature_name": "%s", "instances": [' + ",".join(texts) + "]}"
    for name, dtype in (("float64", np.float64), ("float32", np.float32)):
        read = native((body % name).encode())
        assert read.feeds[0].tobytes() == np.array(values, np.float64).astype(dtype).tobytes()


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE | st.floats(width=32, allow_nan=False, allow_infinity=False)))
@settings(max_examples=100, deadline=None)
def test_every_double_that_python_writes_is_read_back(values: list[float]) -> None:
    values += [-0.0, 5e-324, 2.2250738585072014e-308]
    body = json.dumps({"signature_name": "float64", "inputs": values}).encode()
    assert native(body).feeds[0].tobytes() == np.array(values).tobytes()


def test_numbers_halfway_between_two_doubles_are_rounded_to_even() -> None:
    texts = []
    source = random.Random(5)
    for _ in range(2_000):
        mantissa, exponent = 2 * source.randrange(2**52, 2**53) + 1, source.randint(-80, 60)
        whole = mantissa * 2**exponent if exponent >= 0 else mantissa * 5**-exponent
        texts += [f"{whole + off}e{min(exponent, 0)}" for off in (-1, 0, 1)]
    read = native(('{"signature_name": "float64", "inputs": [' + ",".join(texts) + "]}").encode())
    assert read.feeds[0].tolist() == [float(text) for text in texts]


def leaf(name: str) -> st.SearchStrategy[str]:
    """Return the text of a valid value for a type."""
    dtype = DTYPES[name]
    if name == "bool":
        return st.sampled_from(("true", "false"))
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return st.integers(int(limits.min), int(limits.max)).map(str)
    words = st.sampled_from(("NaN", "Infinity", "-Infinity", "-0", "-0.0", "0", "1e-400", "18446744073709551616"))
    return st.integers(-(2**70), 2**70).map(str) | FINITE.map(repr) | words


@st.composite
def nested(draw: st.DrawFn, name: str, shape: tuple[int, ...]) -> str:
    if not shape:
        return draw(SPACE) + draw(leaf(name)) + draw(SPACE)
    items = [draw(nested(name, shape[1:])) for _ in range(shape[0])]
    return draw(SPACE) + "[" + ",".join(items) + draw(SPACE) + "]" + draw(SPACE)


@st.composite
def right_bodies(draw: st.DrawFn) -> str:
    """Draw a valid body, in any form."""
    name = draw(st.sampled_from(tuple(SIGNATURES)))
    inputs = {alias: spec.dtype.name for alias, spec in SIGNATURES[name].inputs.items()}
    form = draw(st.sampled_from(("rows", "columns", "named rows", "named columns")))
    if len(inputs) > 1 and not form.startswith("named"):
        form = "named " + form
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=form == "rows", max_size=4)))

    def named() -> str:
        aliases = draw(st.permutations(sorted(inputs)))
        values = [f'"{alias}"{draw(SPACE)}:{draw(nested(inputs[alias], shape))}' for alias in aliases]
        return "{" + draw(SPACE) + ("," + draw(SPACE)).join(values) + "}"

    if form == "named rows":
        data = "[" + draw(SPACE) + ",".join(named() + draw(SPACE) for _ in range(draw(st.integers(1, 3)))) + "]"
    else:
        data = named() if form == "named columns" else draw(nested(inputs["x"], shape))
    members = [json.dumps("instances" if "rows" in form else "inputs") + draw(SPACE) + ":" + draw(SPACE) + data]
    if name != DEFAULT_SIGNATURE or draw(st.booleans()):
        members.insert(0, f'"signature_name"{draw(SPACE)}:{draw(SPACE)}"{name}"')
    return draw(SPACE) + "{" + draw(SPACE) + ("," + draw(SPACE)).join(members) + draw(SPACE) + "}" + draw(SPACE)


@given(right_bodies())
@settings(max_examples=150, deadline=None)
def test_valid_bodies_are_read_as_python_reads_them(text: str) -> None:
    assert_both_read(text.encode(), taken=True)


PIECES = (b"", b"\xff", b"\0", *(bytes([code]) for code in b'[]{},:-.e"01 '))


@given(right_bodies(), st.data())
@settings(max_examples=200, deadline=None)
def test_damaged_bodies_are_accepted_only_if_python_reads_them_alike(text: str, data: st.DataObject) -> None:
    body = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body)))
        piece = data.draw(st.sampled_from(PIECES))
        body[place : place + data.draw(st.integers(0, 3))] = piece
    assert_both_read(bytes(body), taken=False)


@given(right_bodies())
@settings(max_examples=20, deadline=None)
def test_truncated_bodies_are_never_accepted(text: str) -> None:
    body = text.rstrip().encode()
    assert all(native(body[:size]) is None for size in range(len(body)))


def test_integers_have_the_range_of_their_type() -> None:
    for name, dtype in DTYPES.items():
        if dtype.kind not in "iu":
            continue
        limits = np.iinfo(dtype)
        body = '{"signature_name": "%s", "instances": [%d]}'
        for value in (int(limits.min), int(limits.max), 0):
            assert native((body % (name, value)).encode()).feeds[0].tolist() == [value]
        for value in (int(limits.min) - 1, int(limits.max) + 1, 10**30):
            assert native((body % (name, value)).encode()) is None


def test_a_signature_may_be_named_behind_the_data() -> None:
    read = native(b'{"instances": [1, 2], "signature_name": "int64"}')
    assert read.feeds[0].dtype == np.int64


def test_values_read_from_a_body_stay_valid_when_the_next_body_is_read() -> None:
    first, second = native(b'{"instances": [1, 2]}'), native(b'{"instances": [3, 4]}')
    assert first.feeds[0].tolist() == [1, 2]
    assert second.feeds[0].tolist() == [3, 4]


def test_large_bodies_are_read_too() -> None:
    values = np.random.default_rng(0).random((1, 224, 224, 3))
    read = native(json.dumps({"instances": values.tolist()}).encode())
    assert np.array_equal(read.feeds[0], values.astype(np.float32))


def test_signatures_with_strings_are_read_by_python() -> None:
    text = TensorSpec("x:0", np.dtype(object), "string", None)
    signatures = {DEFAULT_SIGNATURE: Signature(DEFAULT_SIGNATURE, "predict", {"x": text}, {}), "n": SIGNATURES["int8"]}
    library = load_native_json()
    assert isinstance(library, NativeJson)
    reader = NumericReader(signatures, default=DEFAULT_SIGNATURE, library=library)
    assert reader.read(b'{"instances": [1]}') is None
    assert reader.read(b'{"inputs": {}}') is None
    read = reader.read(b'{"signature_name": "n", "instances": [1]}')
    assert read is not None
    assert read.signature is signatures["n"]


def test_an_input_called_b64_is_read_by_python() -> None:
    signatures = {DEFAULT_SIGNATURE: Signature(DEFAULT_SIGNATURE, "predict", {"b64": SPECS["float32"]}, {})}
    library = load_native_json()
    assert isinstance(library, NativeJson)
    body = b'{"instances": [{"b64": 1}]}'
    assert NumericReader(signatures, default=DEFAULT_SIGNATURE, library=library).read(body) is None
    with pytest.raises(RequestError, match="not of expected type: float"):
        read_document(body, SimpleNamespace(signatures=signatures, unusable={}))  # type: ignore[arg-type]  # pyrefly: ignore
