"""Form bodies of the query protocol (``Action=...&Tags.member.1.Key=...``) into botocore's shapes."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.parse_xml import parse_scalar

__all__ = ["compile_query", "parse_form"]

_MAX_FIELDS = 2000
_NOTHING = object()

FromForm = Callable[["Form", str], Any]
"""Reads the value that stands under a prefix, or answers ``_NOTHING``."""


class Form:
    """The fields of a form, and which prefixes occur in it."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self.prefixes: set[str] = set()
        for name in fields:
            parts = name.split(".")
            for count in range(1, len(parts) + 1):
                self.prefixes.add(".".join(parts[:count]))


def parse_form(body: bytes) -> dict[str, str]:
    """Read ``application/x-www-form-urlencoded`` text.

    Raises:
        AwsError: MalformedQueryString (400): not UTF-8, too many fields, or a field given twice.
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
    """Make the reader of an operation's input."""
    if shape is None:
        return lambda fields: {}
    read = _structure(shape, {})

    def parse(fields: Mapping[str, str]) -> dict[str, Any]:
        found = read(Form(fields), "")
        return {} if found is _NOTHING else found

    return parse


def _malformed(reason: str) -> AwsError:
    return AwsError(f"The form cannot be read: {reason}.", code="MalformedQueryString", status=400)


def _compile(shape: Shape, memo: dict[str, FromForm]) -> FromForm:
    if isinstance(shape, StructureShape):
        return _structure(shape, memo)
    if isinstance(shape, ListShape):
        return _list(shape, memo)
    if isinstance(shape, MapShape):
        return _map(shape, memo)
    return _scalar(shape)


def _structure(shape: StructureShape, memo: dict[str, FromForm]) -> FromForm:
    known = memo.get(shape.name)
    if known is not None:
        return known
    members: list[tuple[str, str, FromForm]] = []

    def read(form: Form, prefix: str) -> Any:
        if prefix and prefix not in form.prefixes:
            return _NOTHING
        found = {}
        for wire_name, name, inner in members:
            value = inner(form, f"{prefix}.{wire_name}" if prefix else wire_name)
            if value is not _NOTHING:
                found[name] = value
        return found

    memo[shape.name] = read
    for name, member in shape.members.items():
        wire_name = member.serialization.get("name", name)
        if isinstance(member, ListShape) and member.serialization.get("flattened"):
            wire_name = member.member.serialization.get("name", wire_name)
        members.append((wire_name, name, _compile(member, memo)))
    return read


def _list(shape: ListShape, memo: dict[str, FromForm]) -> FromForm:
    inner = _compile(shape.member, memo)
    flattened = shape.serialization.get("flattened")
    element = shape.member.serialization.get("name", "member")

    def read(form: Form, prefix: str) -> Any:
        if prefix not in form.prefixes:
            return _NOTHING
        base = prefix if flattened else f"{prefix}.{element}"
        found: list[Any] = []
        while f"{base}.{len(found) + 1}" in form.prefixes:
            found.append(inner(form, f"{base}.{len(found) + 1}"))
        return found

    return read


def _map(shape: MapShape, memo: dict[str, FromForm]) -> FromForm:
    inner = _compile(shape.value, memo)
    key_name = shape.key.serialization.get("name", "key")
    value_name = shape.value.serialization.get("name", "value")
    flattened = shape.serialization.get("flattened")

    def read(form: Form, prefix: str) -> Any:
        if prefix not in form.prefixes:
            return _NOTHING
        base = prefix if flattened else f"{prefix}.entry"
        found: dict[str, Any] = {}
        index = 1
        while f"{base}.{index}" in form.prefixes:
            value = inner(form, f"{base}.{index}.{value_name}")
            found[form.fields.get(f"{base}.{index}.{key_name}", "")] = None if value is _NOTHING else value
            index += 1
        return found

    return read


def _scalar(shape: Shape) -> FromForm:
    def read(form: Form, prefix: str) -> Any:
        text = form.fields.get(prefix)
        if text is None:
            return _NOTHING
        try:
            return parse_scalar(shape, text)
        except ValueError as error:
            raise _malformed(f"{prefix}: {error}") from None

    return read
