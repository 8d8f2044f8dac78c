"""Parses JSON as AWS's services do, and converts it to botocore's shapes.

Every text has one meaning, or is refused with a SerializationException. The standard library's parser accepts NaN,
1e999, duplicate keys, UTF-16 and lone surrogates, and exhausts the stack on deep nesting.

The conversion checks types, converts timestamps and blobs, and drops unknown members. Each shape is compiled into
functions once. A string, integer or boolean of the right type costs one dictionary look-up.
"""

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import BodyStream
from tidemill.wire.protocols.shapes import Functions, fold
from tidemill.wire.protocols.shapes import Path as ShapePath
from tidemill.wire.protocols.wording import Path
from tidemill.wire.protocols.wording import render as _render
from tidemill.wire.request import Request
from tidemill.wire.timestamps import parse_epoch, parse_iso8601, parse_rfc822

Convert = Callable[[Any, Path, list[str]], Any]
"""Arguments: value, its path, and a list that collects the paths of unknown members."""

MAX_DEPTH = 64
MAX_DIGITS = 40
"""Longer integers are refused while parsing; the model's own bounds are checked by validation."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_MAX_UNKNOWN = 20
_EXACT = {"string": str, "integer": int, "long": int, "boolean": bool}
_NAMES = {
    "string": "a string",
    "integer": "an integer",
    "long": "an integer",
    "boolean": "true or false",
    "double": "a number",
    "float": "a number",
    "timestamp": "seconds since 1970 or an ISO 8601 time",
    "blob": "base64 text",
    "structure": "an object",
    "map": "an object",
    "list": "an array",
}


def load_json(data: bytes) -> Any:
    """Parse one JSON document.

    Args:
        data: UTF-8 text without a byte-order mark.

    Returns:
        Dictionaries, lists, strings, integers, finite floats, booleans and None.

    Raises:
        AwsError: SerializationException (400), with the reason.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(f"the body is not UTF-8 (byte {error.start})")
    if text.startswith("\ufeff"):
        _refuse("the body begins with a byte-order mark; send plain UTF-8")
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        _refuse(f"the body is not JSON: {error.msg} at character {error.pos}")
    if _SURROGATE.search(text):
        _check_surrogates(document)
    return document


def compile_json(shape: Shape) -> Convert:
    """Return the converter of a shape.

    Args:
        shape: A shape of botocore's model.
    """
    return fold(shape, _Converters())


def compile_json_body(
    shape: StructureShape | None,
) -> Callable[[Request, Mapping[str, str], bytes | BodyStream, list[str]], dict[str, Any]]:
    """Make the reader of an operation's input that is the body alone; an empty body has no members.

    Returns:
        A function of the request, its path parameters, its body, and a list that collects unknown members.
    """
    if shape is None:
        return lambda request, path, body, unknown: {}
    convert = compile_json(shape)

    def read(request: Request, path: Mapping[str, str], body: bytes | BodyStream, unknown: list[str]) -> dict[str, Any]:
        text = body if isinstance(body, bytes) else b""
        return convert(load_json(text) if text else {}, None, unknown)

    return read


class _Converters(Functions):
    """Builds the converter of each part of a shape."""

    def structure(self, shape: StructureShape, inside: Mapping[str, Convert], at: ShapePath) -> Convert:
        members = {
            member.serialization.get("name", name): (name, _EXACT.get(member.type_name), inside[name])
            for name, member in shape.members.items()
        }

        def convert(value: Any, path: Path, unknown: list[str]) -> dict[str, Any]:
            if type(value) is not dict:
                _wrong_type(value, path, "structure")
            found: dict[str, Any] = {}
            for key, item in value.items():
                if item is None:
                    continue
                entry = members.get(key)
                if entry is None:
                    if len(unknown) < _MAX_UNKNOWN:
                        unknown.append(_render((path, key)))
                    continue
                name, exact, inner = entry
                found[name] = item if type(item) is exact else inner(item, (path, name), unknown)
            return found

        return convert

    def list(self, shape: ListShape, item: Convert, at: ShapePath) -> Convert:
        def convert(value: Any, path: Path, unknown: list[str]) -> list[Any]:
            if type(value) is not list:
                _wrong_type(value, path, "list")
            return [item(one, (path, str(index)), unknown) for index, one in enumerate(value) if one is not None]

        return convert

    def map(self, shape: MapShape, key: Convert, value: Convert, at: ShapePath) -> Convert:
        exact = _EXACT.get(shape.value.type_name)

        def convert(entries: Any, path: Path, unknown: list[str]) -> dict[str, Any]:
            if type(entries) is not dict:
                _wrong_type(entries, path, "map")
            return {
                name: one if type(one) is exact else value(one, (path, name), unknown)
                for name, one in entries.items()
                if one is not None
            }

        return convert

    def scalar(self, shape: Shape, at: ShapePath) -> Convert:
        return _SCALARS[shape.type_name](shape)


def _exact(shape: Shape) -> Convert:
    type_name = shape.type_name
    expected = _EXACT[type_name]

    def convert(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not expected:
            if expected is int and type(value) is float and value.is_integer():
                return int(value)
            _wrong_type(value, path, type_name)
        return value

    return convert


def _number(shape: Shape) -> Convert:
    def convert(value: Any, path: Path, unknown: list[str]) -> float:
        if type(value) not in (int, float):
            _wrong_type(value, path, shape.type_name)
        return float(value)

    return convert


def _timestamp(shape: Shape) -> Convert:
    def convert(value: Any, path: Path, unknown: list[str]) -> Any:
        try:
            if type(value) in (int, float):
                return parse_epoch(value)
            if type(value) is str:
                return parse_iso8601(value) if value[:4].isdigit() else parse_rfc822(value)
        except ValueError:
            pass  # the error below includes the path
        _wrong_type(value, path, "timestamp")

    return convert


def _blob(shape: Shape) -> Convert:
    def convert(value: Any, path: Path, unknown: list[str]) -> bytes:
        if type(value) is not str:
            _wrong_type(value, path, "blob")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            _wrong_type(value, path, "blob")

    return convert


_SCALARS: dict[str, Callable[[Shape], Convert]] = {
    "string": _exact,
    "integer": _exact,
    "long": _exact,
    "boolean": _exact,
    "double": _number,
    "float": _number,
    "timestamp": _timestamp,
    "blob": _blob,
}


def _wrong_type(value: Any, path: Path, expected: str) -> NoReturn:
    place = f"at {_render(path)!r}" if path else "as the body"
    shown = repr(value)
    raise AwsError(
        f"The request cannot be read: expected {_NAMES[expected]} {place}, received"
        f" {shown if len(shown) <= 128 else shown[:128] + '...'}.",
        code="SerializationException",
    )


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse(f"the body is nested deeper than {MAX_DEPTH} levels")
        elif first != '"':
            depth -= 1


def _check_surrogates(document: Any) -> None:
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                _refuse("a string holds half of a surrogate pair, which is no character")
        elif isinstance(value, dict):
            pending.extend(value.keys())
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        _refuse(f"the key {twice[:64]!r} appears twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        _refuse(f"an integer of {len(text)} digits; at most {MAX_DIGITS} are read")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse(f"the number {text[:32]} is out of range")
    return value


def _constant(text: str) -> NoReturn:
    _refuse(f"{text} is not JSON; numbers must be finite")


def _refuse(reason: str) -> NoReturn:
    raise AwsError(f"The request cannot be read: {reason}.", code="SerializationException")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
