"""No well-formed request gets a 5xx: valid ones get an answer, invalid ones a 4xx with TF Serving's kind of text.

A short definition here decides which requests are valid. It is compared with a real server over types, ranks, forms and
values generated from fixed seeds. Several clients send at the same time, so that their rows share runs.
"""

import base64
import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import ml_dtypes
import numpy as np
import pytest

Server = Any  # a ServerProcess of conftest.py
Value = Any
CLIENTS = 4
FUZZ_S = float(os.environ.get("FUZZ_S", "0"))
FLOAT_TYPES: dict[str, Any] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}
INTEGER_TYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
RANKED_TYPES = ("float32", "bool", "string")
SIGNATURES = (
    *(*FLOAT_TYPES, *INTEGER_TYPES, "bool", "string"),
    *(f"{name}_{rank}" for name in RANKED_TYPES for rank in range(5)),
)
TEXTS = (
    "JSON Value: ",
    "JSON Parse error: ",
    "Failed to process element: ",
    "Encountered list at unexpected size: ",
    "Expecting tensor size: ",
    "Expecting shape [",
    "Expecting object but got list",
    "Expecting value/list but got object",
    "Unable to base64 decode",
    "Missing named input: ",
    "Missing 'inputs' or 'instances' key",
    "input size does not match signature: ",
    "Serving signature name: ",
)
ODD_VALUES: tuple[Value, ...] = (
    *(None, True, False, "", "1", "é\U0001f30a", "\x00"),
    *({}, {"y": 1}, {"b64": "AAE="}, {"b64": "%"}, {"b64": "é"}, {"b64": 5}),
    *(0, 1, -1, 1.0, 1.5, -0.0, 127, 128, 255, 256, -129, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64),
    *(-(2**63), -(2**63) - 1, 10**40, -(10**40), 10**300, 1e39, -1e39, 1e300, 1e-300, 1e-45, 65519.0, 65520.0),
    *(float("nan"), float("inf"), float("-inf"), [], [[]], [1], ["a"], [[[[[[1]]]]]]),
)


class Generator:
    """Generates values, most of them valid for a type."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def value(self, name: str, rank: int) -> Value:
        value = self._nested(name, [self.random.choice((0, 1, 1, 2, 3)) for _ in range(rank)])
        return self._spoiled(value) if self.random.random() < 0.4 else value

    def leaf(self, name: str) -> Value:
        if name in FLOAT_TYPES:
            number = self.random.randint(-255, 255)  # every float type represents an eighth of it exactly
            return self.random.choice((number, number / 8, float("nan")))
        if name in INTEGER_TYPES:
            limits = np.iinfo(name)
            return self.random.choice((int(limits.min), int(limits.max), self.random.randint(limits.min, limits.max)))
        if name == "bool":
            return self.random.random() < 0.5
        content = self.random.randbytes(self.random.randint(0, 4))
        return self.random.choice(("", "tide", "é\U0001f30a", {"b64": base64.b64encode(content).decode()}))

    def _nested(self, name: str, sizes: list[int]) -> Value:
        if not sizes:
            return self.leaf(name)
        return [self._nested(name, sizes[1:]) for _ in range(sizes[0])]

    def _spoiled(self, value: Value) -> Value:
        """Return the value with one place changed, or with an item more or less in a list."""
        if not isinstance(value, list) or self.random.random() < 0.2:
            return self.random.choice(ODD_VALUES)
        changed = list(value)
        if not changed or self.random.random() < 0.2:
            return changed[1:] if changed and self.random.random() < 0.5 else [*changed, self.random.choice(ODD_VALUES)]
        index = self.random.randrange(len(changed))
        changed[index] = self._spoiled(changed[index])
        return changed


def shape_of(value: Value) -> tuple[int, ...] | None:
    """Return the shape of nested lists; None if they are ragged."""
    if not isinstance(value, list):
        return ()
    shapes = {shape_of(item) for item in value}
    if len(shapes) > 1 or None in shapes:
        return None
    return (len(value), *(shapes.pop() or () if shapes else ()))


def leaves(value: Value) -> Iterator[Value]:
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def text_of(value: Value) -> bytes | None:
    """Return the bytes of a string value; None for other values."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except ValueError:
            return None
    return None


def fits(value: Value, name: str) -> bool:
    """Return whether a single value is valid in a tensor of a type."""
    if name == "string":
        return text_of(value) is not None
    if name == "bool":
        return isinstance(value, bool)
    if name in FLOAT_TYPES:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, int) and not isinstance(value, bool) and np.iinfo(name).min <= value <= np.iinfo(name).max


def is_right(value: Value, name: str) -> bool:
    return shape_of(value) is not None and all(fits(leaf, name) for leaf in leaves(value))


def assert_same(answer: Value, value: Value, name: str) -> None:
    """Compare the result of a signature with its input."""
    assert shape_of(answer) == shape_of(value)
    if name == "string":
        assert [text_of(leaf) for leaf in leaves(answer)] == [text_of(leaf) for leaf in leaves(value)]
    elif name in FLOAT_TYPES:
        with np.errstate(over="ignore"):
            got, wanted = ([np.float64(leaf).astype(FLOAT_TYPES[name]) for leaf in leaves(v)] for v in (answer, value))
        np.testing.assert_array_equal(np.array(got, np.float64), np.array(wanted, np.float64))
    else:
        assert answer == value


def post(connection: HTTPConnection, target: str, body: bytes, **headers: str) -> tuple[int, Value]:
    """Send a request; the answer must be JSON, and not a server error."""
    connection.request("POST", target, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    status, text = reply.status, reply.read()
    assert status == 200 or 400 <= status < 500, (target, headers, body, status, text)
    answer = json.loads(text)
    assert status == 200 or isinstance(answer["error"], str), text
    return status, answer


def by_clients(server: Server, client: Callable[[HTTPConnection, int], None]) -> None:
    """Run a client several times concurrently, each with its own seed and connection."""

    def run(seed: int) -> None:
        with closing(server.connect()) as connection:
            client(connection, seed)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(run, range(CLIENTS)))


def check_predict(connection: HTTPConnection, signature: str, value: Value, form: str) -> None:
    name, _, rank = signature.partition("_")
    named = [{"x": row} for row in value] if form == "named rows" and isinstance(value, list) else value
    key, sent = {
        "rows": ("instances", value),
        "named rows": ("instances", named),
        "columns": ("inputs", value),
        "named columns": ("inputs", {"x": value}),
    }[form]
    body = json.dumps({"signature_name": signature, key: sent}, ensure_ascii=False).encode()
    status, answer = post(connection, "/v1/models/types:predict", body)
    right = is_right(value, name) and (key == "inputs" or (isinstance(value, list) and bool(value)))
    if status == 200:
        assert right, (signature, body, answer)
        assert_same(answer["predictions" if key == "instances" else "outputs"], value, name)
    else:
        assert not right or (rank and int(rank) != len(shape_of(value) or ())), (signature, body, answer)
        assert answer["error"].startswith(TEXTS), (body, answer)


def test_every_value_of_every_type_is_answered_or_refused(server: Server) -> None:
    def client(connection: HTTPConnection, seed: int) -> None:
        generator = Generator(seed)
        for turn in range(1_000):
            signature = SIGNATURES[turn % len(SIGNATURES)]
            name, _, rank = signature.partition("_")
            value = generator.value(name, int(rank) if rank else generator.random.randrange(5))
            form = generator.random.choice(("rows", "named rows", "columns", "named columns"))
            check_predict(connection, signature, value, form)

    by_clients(server, client)


@pytest.mark.parametrize("name", SIGNATURES[:14])
def test_every_odd_value_is_answered_or_refused_by_every_type(server: Server, name: str) -> None:
    with closing(server.connect()) as connection:
        forms = itertools.cycle(("rows", "named rows", "columns", "named columns", "rows"))
        for value in ODD_VALUES:
            for nested in (value, [value], [[value]], [Generator(0).leaf(name), value], [[[value]] * 70]):
                check_predict(connection, name, nested, next(forms))


def test_inputs_of_several_types_are_answered_or_refused(server: Server) -> None:
    types = {"flag": "bool", "counts": "int64", "name": "string"}

    def client(connection: HTTPConnection, seed: int) -> None:
        generator = Generator(seed)
        for _ in range(200):
            rows = generator.random.randint(1, 3)
            columns = {
                key: [generator.leaf(name) if key != "counts" else [generator.leaf(name)] for _ in range(rows)]
                for key, name in types.items()
            }
            wrong = generator.random.choice((None, None, *types))
            if wrong:
                columns[wrong][generator.random.randrange(rows)] = generator.random.choice(ODD_VALUES)
            right = all(is_right(column, types[key]) for key, column in columns.items())
            right = right and shape_of(columns["flag"]) == shape_of(columns["name"]) == (rows,)
            as_rows = [{key: column[index] for key, column in columns.items()} for index in range(rows)]
            for body in ({"inputs": columns}, {"instances": as_rows}):
                status, answer = post(connection, "/v1/models/mixed:predict", json.dumps(body).encode())
                assert status == 200 or not right, (body, answer)
                if status == 200 and right and "instances" in body:
                    assert [row["flag"] for row in answer["predictions"]] == columns["flag"]
                    assert [row['a "b"'] for row in answer["predictions"]] == [not flag for flag in columns["flag"]]

    by_clients(server, client)


def test_every_feature_is_answered_or_refused(server: Server) -> None:
    kinds = {"decimal": float, "whole": int, "text": (str, dict)}

    def feature(generator: Generator, name: str) -> Value:
        value = {
            "decimal": generator.random.randint(-255, 255) / 8,
            "whole": generator.random.choice((True, generator.random.randint(-255, 255))),
            "text": generator.random.choice(("", "tide", {"b64": "AAE="})),
        }[name]
        value = generator.random.choice(ODD_VALUES) if generator.random.random() < 0.3 else value
        return generator.random.choice((value, [value], [value, generator.random.choice(ODD_VALUES)], []))

    def is_right_feature(name: str, value: Value) -> bool:
        """Return whether the model, which needs one value of each feature, accepts this one."""
        if value == []:
            return True
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        in_range = not isinstance(value, int) or -(2**63) <= value < 2**63
        return isinstance(value, kinds[name]) and in_range and (name != "text" or text_of(value) is not None)

    def client(connection: HTTPConnection, seed: int) -> None:
        generator = Generator(seed)
        for turn in range(400):
            examples: list[Value] = [
                {name: feature(generator, name) for name in kinds if generator.random.random() < 0.4}
                for _ in range(generator.random.randint(1, 3))
            ]
            context = {name: feature(generator, name) for name in kinds if generator.random.random() < 0.1}
            if generator.random.random() < 0.05:
                examples[0] = generator.random.choice(ODD_VALUES)
            right = all(
                isinstance(example, dict)
                and all(name in kinds and is_right_feature(name, v) for name, v in {**context, **example}.items())
                for example in examples
            )
            verb = ("regress", "classify")[turn % 2]
            body = json.dumps({"signature_name": verb, "examples": examples, "context": context}).encode()
            status, answer = post(connection, f"/v1/models/examples:{verb}", body)
            unknown = any(isinstance(example, dict) and example.keys() - kinds.keys() for example in examples)
            # A context is refused for a wrong feature even if each example has that feature itself.
            is_odd = not all(is_right_feature(name, value) for name, value in context.items())
            assert (status == 200) is right or unknown or (status == 400 and is_odd), (body, answer)
            assert status != 200 or len(answer["results"]) == len(examples)

    by_clients(server, client)


BODIES = (
    b'{"signature_name": "float32", "instances": [[1.5, NaN], [-2e3, 4]]}',
    b'{"signature_name": "string", "inputs": {"x": ["\\ud83c\\udf0a", "\xc3\xa9", {"b64": "AAE="}]}}',
    b'{"signature_name": "int64", "instances": [{"x": 9223372036854775807}, {"x": -1}]}',
    b'{"signature_name": "regress", "examples": [{"whole": [true]}], "context": {"text": "\\n"}}',
    b'{"signature_name": "float32", "instances": [' + b",".join(b"[%d, 0.25]" % n for n in range(60)) + b"]}",
    b'{"x": 1.5}\n{"x": 2}\n[3]\n',
    b'1,2.5,"a ""b""",\xc3\xa9\r\n+7,.5,,-1e3\n',
    b"\x93NUMPY\x01\x00\x38\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}\n\x00\x00\x80?\x00\x00\x00@",
)
TARGETS = (
    *("/invocations", "/invocations", "/v1/models/examples:regress", "/v1/models/examples:classify"),
    *("/v1/models/types/versions/1:predict", "/v1/models/types:predict", "/v1/models/mixed:predict"),
)
CONTENT_TYPES = (
    *("application/json", "application/jsonlines", "application/jsons", "text/csv", "text/plain", ""),
    "application/x-npy",
)
ACCEPTS = ("", "*/*", "application/json", ",application/json", "application/jsonlines, x", "text/csv;q=0")
ATTRIBUTES = ("", "tfs-model-name=types", "tfs-method=regress", "tfs-model-version=" + "9" * 30, "tfs-model-name=\xff")


def damaged(body: bytes, source: random.Random) -> bytes:
    """Return the body with some bytes removed, doubled or replaced."""
    changed = bytearray(body)
    for _ in range(source.randint(0, 4)):
        place = source.randrange(len(changed) + 1)
        length = source.choice((1, 1, 2, 8))
        mark = source.choice(b'[]{},:"\\0e-.').to_bytes()
        piece = source.choice((b"", source.randbytes(1), mark, changed[place:][:8]))
        changed[place : place + length] = piece
    return bytes(changed)


def test_damaged_bodies_are_answered_or_refused_on_every_route(server: Server) -> None:
    """They are damaged at random for ``FUZZ_S`` seconds, but at least 600 times by each client."""
    end_s = time.monotonic() + FUZZ_S

    def client(connection: HTTPConnection, seed: int) -> None:
        source = random.Random(seed)
        turns = 0
        while turns < 600 or time.monotonic() < end_s:
            turns += 1
            body = damaged(source.choice(BODIES), source)
            post(
                connection,
                source.choice(TARGETS),
                body,
                Content_Type=source.choice(CONTENT_TYPES),
                Accept=source.choice(ACCEPTS),
                X_Amzn_SageMaker_Custom_Attributes=source.choice(ATTRIBUTES),
            )

    by_clients(server, client)
