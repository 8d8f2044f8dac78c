"""Converts JSON values to botocore's shapes: checks types, converts timestamps and blobs, drops unknown members.

Each shape is compiled into functions once. A string, integer or boolean of the right type costs one dictionary look-up.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import BodyStream
from tidemill.wire.protocols import strict_json
from tidemill.wire.protocols.shapes import Functions, fold
from tidemill.wire.protocols.shapes import Path as ShapePath
from tidemill.wire.protocols.wording import Path
from tidemill.wire.protocols.wording import render as _render
from tidemill.wire.request import Request
from tidemill.wire.timestamps import parse_epoch, parse_iso8601, parse_rfc822

__all__ = ["Convert", "compile_json", "compile_json_body"]

Convert = Callable[[Any, Path, list[str]], Any]
"""Arguments: value, its path, and a list that collects the paths of unknown members."""

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


def compile_json(shape: Shape) -> Convert:
    """Return the converter of a shape."""
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
        return convert(strict_json.loads(text) if text else {}, None, unknown)

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
        status=400,
    )
