"""Converts REST requests (rest-json and rest-xml) to botocore's shapes: path, query, headers, payload."""

import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import BodyStream
from tidemill.wire.protocols.parse_json import compile_json, load_json
from tidemill.wire.protocols.parse_xml import compile_xml, parse_document, parse_scalar
from tidemill.wire.request import Request

__all__ = ["RestParse", "compile_rest"]

_CONDITION = re.compile(r"(^|-)if-|-bucket-owner$")
"""Headers that decide whether a request is carried out at all."""

RestParse = Callable[[Request, Mapping[str, str], bytes | BodyStream, list[str]], dict[str, Any]]
"""Arguments: request, path parameters, body, and a list that collects the paths of unknown members."""

_FromBody = Callable[[bytes, list[str]], dict[str, Any]]
_FromHead = Callable[[Request, dict[str, Any]], None]


def compile_rest(shape: StructureShape | None, *, form: Literal["json", "xml"], code: str) -> RestParse:
    """Return the reader of an operation's input.

    Args:
        shape: The operation's input.
        form: Format of structures in the body.
        code: Error code for a query parameter or header of the wrong type.
    """
    if shape is None:
        return lambda request, path, body, unknown: {}
    payload = shape.serialization.get("payload")
    head: list[_FromHead] = []
    uri_names: list[tuple[str, str]] = []
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        if location == "uri":
            uri_names.append((member.serialization.get("name", name), name))
        elif location is not None:
            make = _s3_header_reader if form == "xml" and location == "header" else _HEAD_READERS[location]
            head.append(make(name, member, code))
    read_body = _body_reader(shape, payload, form)

    def parse(
        request: Request, path: Mapping[str, str], body: bytes | BodyStream, unknown: list[str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {name: path[wire_name] for wire_name, name in uri_names if wire_name in path}
        for read in head:
            read(request, found)
        if isinstance(body, BodyStream):
            found[str(payload)] = body
        else:
            found.update(read_body(body, unknown))
        return found

    return parse


def _body_reader(shape: StructureShape, payload: str | None, form: str) -> _FromBody:
    if payload is None:
        if all(member.serialization.get("location") for member in shape.members.values()):
            return lambda body, unknown: {}
        return _structure_reader(shape, form)
    member = shape.members[payload]
    if not isinstance(member, StructureShape):
        as_text = member.type_name == "string"
        return lambda body, unknown: {payload: body.decode("utf-8", "replace") if as_text else body}
    read = _structure_reader(member, form)
    return lambda body, unknown: {payload: read(body, unknown)} if body else {}


def _structure_reader(shape: StructureShape, form: str) -> _FromBody:
    if form == "xml":
        from_xml = compile_xml(shape)
        return lambda body, unknown: from_xml(parse_document(body)) if body else {}
    from_json = compile_json(shape)
    return lambda body, unknown: from_json(load_json(body), None, unknown) if body else {}


def _query_reader(name: str, member: Shape, code: str) -> _FromHead:
    wire_name = str(member.serialization.get("name", name))

    def read(request: Request, found: dict[str, Any]) -> None:
        text = request.query_map.get(wire_name)
        if text is not None:
            found[name] = _scalar(member, text, wire_name, code, timestamp_format="iso8601")

    def read_list(request: Request, found: dict[str, Any]) -> None:
        texts = [text for key, text in request.query if key == wire_name]
        if texts:
            inner = member.member if isinstance(member, ListShape) else member
            found[name] = [_scalar(inner, text, wire_name, code, timestamp_format="iso8601") for text in texts]

    return read_list if isinstance(member, ListShape) else read


def _header_reader(name: str, member: Shape, code: str) -> _FromHead:
    wire_name = str(member.serialization.get("name", name)).lower()

    def read(request: Request, found: dict[str, Any]) -> None:
        text = request.headers.get(wire_name)
        if text is None:
            return
        if isinstance(member, ListShape):
            inner = member.member
            found[name] = [
                _scalar(inner, part.strip(), wire_name, code, timestamp_format="rfc822") for part in text.split(",")
            ]
        else:
            found[name] = _scalar(member, _header_text(text), wire_name, code, timestamp_format="rfc822")

    return read


def _s3_header_reader(name: str, member: Shape, code: str) -> _FromHead:
    """Like `_header_reader`, but as lenient as S3 is with its headers.

    S3 compares enumerations without case, and treats an empty header as absent: pyarrow sends
    ``x-amz-checksum-mode: enabled``, s3fs 0.4 an empty ``x-amz-acl``. Conditions are not treated so: ignoring an empty
    one would do what the client wanted to prevent.
    """
    wire_name = str(member.serialization.get("name", name)).lower()
    read_exactly = _header_reader(name, member, code)
    keeps_empty = _CONDITION.search(wire_name) is not None
    inner = member.member if isinstance(member, ListShape) else member
    spellings = {value.lower(): value for value in inner.metadata.get("enum", ())}

    def read(request: Request, found: dict[str, Any]) -> None:
        if not keeps_empty and not request.headers.get(wire_name, "").strip():
            return
        read_exactly(request, found)
        value = found.get(name)
        if spellings and isinstance(value, list):
            found[name] = [spellings.get(each.lower(), each) for each in value]
        elif spellings and value is not None:
            found[name] = spellings.get(value.lower(), value)

    return read


def _prefix_reader(name: str, member: Shape, code: str) -> _FromHead:
    prefix = str(member.serialization.get("name", "")).lower()

    def read(request: Request, found: dict[str, Any]) -> None:
        entries = {
            key[len(prefix) :]: _header_text(text) for key, text in request.headers.items() if key.startswith(prefix)
        }
        if entries:
            found[name] = entries

    return read


def _scalar(shape: Shape, text: str, wire_name: str, code: str, *, timestamp_format: str) -> Any:
    if isinstance(shape, MapShape | StructureShape):
        raise TypeError(f"{shape.name} cannot stand in a header or query")
    try:
        return parse_scalar(shape, text, timestamp_format=timestamp_format)
    except (ValueError, binascii.Error) as error:
        raise AwsError(f"{wire_name}: {error}.", code=code, status=400) from None


def _header_text(text: str) -> str:
    if text.isascii():
        return text
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return text


_HEAD_READERS: dict[str, Callable[[str, Shape, str], _FromHead]] = {
    "querystring": _query_reader,
    "header": _header_reader,
    "headers": _prefix_reader,
}
