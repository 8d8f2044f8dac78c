"""Converts form bodies of the query protocol (``Action=...&Tags.member.1.Key=...``) to botocore's shapes."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.protocols.parse_rest import parse_scalar
from tidemill.wire.protocols.shapes import Functions, Path, fold

_MAX_FIELDS = 2000
_NOTHING = object()

FromForm = Callable[["Form", str], Any]
"""Reads the value below a prefix, or returns ``_NOTHING``."""


class Form:
    """The fields of a form, and the prefixes that occur in it."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.prefixes: set[str] = set()
        for name in fields:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                self.prefixes.add(".".join(parts[:count]))


def parse_form(body: bytes) -> dict[str, str]:
    """Parse ``application/x-www-form-urlencoded`` text.

    Raises:
        AwsError: MalformedQueryString (400): not UTF-8, too many fields, or a repeated field.
    """
    try:
        pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise _malformed(f"{error}; send at most {_MAX_FIELDS} fields of UTF-8 text") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _malformed("a field is given twice")
    if any(name.count(".") > 64 for name in fields):
        raise _malformed("a field name is nested deeper than 64 levels")
    return fields


def compile_query(shape: StructureShape | None) -> Callable[[Mapping[str, str]], dict[str, Any]]:
    """Return the reader of an operation's input.

    Args:
        shape: Shape of the input; None without one.

    Returns:
        Turns the fields of a form into members.
    """
    if shape is None:
        return lambda fields: {}
    read = fold(shape, _Readers())

    def parse(fields: Mapping[str, str]) -> dict[str, Any]:
        found = read(Form(fields), "")
        return {} if found is _NOTHING else found

    return parse


def _malformed(reason: str) -> AwsError:
    return AwsError(f"The form cannot be read: {reason}.", code="MalformedQueryString")


class _Readers(Functions):
    """Builds the reader of each part of a shape."""

    def structure(self, shape: StructureShape, inside: Mapping[str, FromForm], at: Path) -> FromForm:
        members = [(_field_name(name, member), name, inside[name]) for name, member in shape.members.items()]

        def read(form: Form, prefix: str) -> Any:
            if prefix and prefix not in form.prefixes:
                return _NOTHING
            found = {}
            for wire_name, name, inner in members:
                value = inner(form, f"{prefix}.{wire_name}" if prefix else wire_name)
                if value is not _NOTHING:
                    found[name] = value
            return found

        return read

    def list(self, shape: ListShape, item: FromForm, at: Path) -> FromForm:
        infix = "" if shape.serialization.get("flattened") else "." + shape.member.serialization.get("name", "member")

        def read(form: Form, prefix: str) -> Any:
            if prefix not in form.prefixes:
                return _NOTHING
            return [item(form, place) for place in _numbered(form, prefix + infix)]

        return read

    def map(self, shape: MapShape, key: FromForm, value: FromForm, at: Path) -> FromForm:
        key_name = shape.key.serialization.get("name", "key")
        value_name = shape.value.serialization.get("name", "value")
        infix = "" if shape.serialization.get("flattened") else ".entry"

        def read(form: Form, prefix: str) -> Any:
            if prefix not in form.prefixes:
                return _NOTHING
            found: dict[str, Any] = {}
            for place in _numbered(form, prefix + infix):
                one = value(form, f"{place}.{value_name}")
                found[form.fields.get(f"{place}.{key_name}", "")] = None if one is _NOTHING else one
            return found

        return read

    def scalar(self, shape: Shape, at: Path) -> FromForm:
        def read(form: Form, prefix: str) -> Any:
            text = form.fields.get(prefix)
            if text is None:
                return _NOTHING
            try:
                return parse_scalar(shape, text)
            except ValueError as error:
                raise _malformed(f"{prefix}: {error}") from None

        return read


def _field_name(name: str, member: Shape) -> str:
    wire_name = str(member.serialization.get("name", name))
    if isinstance(member, ListShape) and member.serialization.get("flattened"):
        return str(member.member.serialization.get("name", wire_name))
    return wire_name


def _numbered(form: Form, base: str) -> Iterator[str]:
    """Yield ``base.1``, ``base.2`` and so on, as long as the form has them."""
    for number in itertools.count(1):
        place = f"{base}.{number}"
        if place not in form.prefixes:
            return
        yield place
