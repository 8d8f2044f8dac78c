"""Converts REST requests (rest-json and rest-xml) to botocore's shapes: path, query, headers, payload.

Only these requests have XML bodies. XML documents with a DTD, and deep ones, are refused before they are built.
"""

import base64
import binascii
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from typing import Any, Literal
from xml.etree.ElementTree import Element, TreeBuilder, XMLParser

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import BodyStream
from tidemill.wire.protocols.parse_json import compile_json, load_json
from tidemill.wire.protocols.shapes import Functions, Path, fold
from tidemill.wire.request import Request
from tidemill.wire.timestamps import parse_iso8601, parse_rfc822

__all__ = ["RestParse", "compile_rest", "parse_document", "parse_scalar"]

_MAX_DEPTH = 64
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CONDITION = re.compile(r"(^|-)if-|-bucket-owner$")
"""Headers that decide whether a request is carried out at all."""

RestParse = Callable[[Request, Mapping[str, str], bytes | BodyStream, list[str]], dict[str, Any]]
"""Arguments: request, path parameters, body, and a list that collects the paths of unknown members."""

_FromBody = Callable[[bytes, list[str]], dict[str, Any]]
_FromHead = Callable[[Request, dict[str, Any]], None]
_FromXml = Callable[[list[Element]], Any]
"""Converts the elements of a member; a flattened list has several."""


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


def parse_document(data: bytes) -> Element:
    """Parse one XML document; namespaces are removed from names.

    Raises:
        AwsError: MalformedXML (400).
    """
    builder = _Builder()
    parser = XMLParser(target=builder)  # noqa: S314 - the builder refuses a DTD, which the attacks need
    try:
        parser.feed(data)
        return parser.close()
    except ElementTree.ParseError as error:
        raise _malformed(f"it is not well formed ({error})") from None
    except (LookupError, ValueError) as error:
        raise _malformed(f"its encoding cannot be read ({error}); send UTF-8") from None


def parse_scalar(shape: Shape, text: str, *, timestamp_format: str = "iso8601") -> Any:
    """Convert a string from headers, queries or XML to the type of ``shape``.

    Raises:
        ValueError: The text is not of that type.
    """
    kind = shape.type_name
    if kind in ("integer", "long"):
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{text[:64]!r} is not an integer")
        return int(text)
    if kind in ("float", "double"):
        if not _DECIMAL.fullmatch(text):
            raise ValueError(f"{text[:64]!r} is not a number")
        value = float(text)
        if not math.isfinite(value):
            raise ValueError(f"{text[:64]!r} is not finite")
        return value
    if kind == "boolean":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text[:64]!r} is neither true nor false")
        return text.lower() == "true"
    if kind == "timestamp":
        chosen = shape.serialization.get("timestampFormat", timestamp_format)
        return parse_iso8601(text) if chosen == "iso8601" or text[:4].isdigit() else parse_rfc822(text)
    if kind == "blob":
        return base64.b64decode(text, validate=True)
    return text


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
        from_xml = _compile_xml(shape)
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


def _compile_xml(shape: StructureShape) -> Callable[[Element], dict[str, Any]]:
    """Return the reader of a structure that is a document's root.

    Unknown elements are ignored, as by AWS.
    """
    read = fold(shape, _XmlReaders())
    return lambda root: read([root])


class _XmlReaders(Functions):
    """Builds the reader of each part of a shape."""

    def structure(self, shape: StructureShape, inside: Mapping[str, _FromXml], at: Path) -> _FromXml:
        members: dict[str, tuple[str, _FromXml]] = {}
        attributes: dict[str, str] = {}
        for name, member in shape.members.items():
            if member.serialization.get("xmlAttribute"):
                attributes[member.serialization.get("name", name).rpartition(":")[2]] = name
            elif not member.serialization.get("location"):
                members[_element_name(name, member)] = (name, inside[name])

        def read(elements: list[Element]) -> dict[str, Any]:
            groups: dict[str, list[Element]] = {}
            for child in elements[0]:
                groups.setdefault(child.tag, []).append(child)
            found = {}
            for tag, group in groups.items():
                entry = members.get(tag)
                if entry is not None:
                    found[entry[0]] = entry[1](group)
            for tag, name in attributes.items():
                for attribute, text in elements[0].attrib.items():
                    if attribute.rpartition("}")[2] == tag:
                        found[name] = text
            return found

        return read

    def list(self, shape: ListShape, item: _FromXml, at: Path) -> _FromXml:
        if shape.serialization.get("flattened"):
            return lambda elements: [item([element]) for element in elements]
        tag = shape.member.serialization.get("name", "member")
        return lambda elements: [item([child]) for child in elements[0] if child.tag == tag]

    def map(self, shape: MapShape, key: _FromXml, value: _FromXml, at: Path) -> _FromXml:
        key_tag = shape.key.serialization.get("name", "key")
        value_tag = shape.value.serialization.get("name", "value")
        flattened = shape.serialization.get("flattened")

        def read(elements: list[Element]) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for entry in elements if flattened else elements[0]:
                name, one = entry.find(key_tag), entry.find(value_tag)
                if name is None or one is None:
                    raise _malformed(f"an entry of a map lacks <{key_tag}> or <{value_tag}>")
                found[name.text or ""] = value([one])
            return found

        return read

    def scalar(self, shape: Shape, at: Path) -> _FromXml:
        def read(elements: list[Element]) -> Any:
            text = elements[0].text or ""
            try:
                return parse_scalar(shape, text if shape.type_name == "string" else text.strip())
            except (ValueError, binascii.Error) as error:
                raise _malformed(f"<{elements[0].tag}>: {error}") from None

        return read


def _element_name(name: str, member: Shape) -> str:
    if isinstance(member, ListShape) and member.serialization.get("flattened"):
        return str(member.member.serialization.get("name") or member.serialization.get("name", name))
    return str(member.serialization.get("name", name))


class _Builder(TreeBuilder):
    """Builds the tree without namespaces; stops at a DTD and at depth 64."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def start(self, tag: Any, attrs: Any) -> Element:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _malformed(f"it is nested deeper than {_MAX_DEPTH} levels")
        return super().start(tag.rpartition("}")[2], attrs)

    def end(self, tag: Any) -> Element:
        self._depth -= 1
        return super().end(tag.rpartition("}")[2])

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise _malformed("it has a document type declaration, which is not allowed")


def _malformed(reason: str) -> AwsError:
    return AwsError(
        f"The XML you provided was not well-formed or did not validate against our published schema: {reason}.",
        code="MalformedXML",
        status=400,
    )


_HEAD_READERS: dict[str, Callable[[str, Shape, str], _FromHead]] = {
    "querystring": _query_reader,
    "header": _header_reader,
    "headers": _prefix_reader,
}
