"""Converts REST requests (rest-json and rest-xml) to botocore's shapes: path, query, headers, payload.

Only these requests have XML bodies. XML documents with a DTD, and deep ones, are refused before they are built.
"""

import base64
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from xml.etree.ElementTree import Element, TreeBuilder, XMLParser

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.bodies.body import BodyStream
from tidemill.wire.protocols.parse_json import compile_json, load_json
from tidemill.wire.protocols.shapes import Functions, Path, fold
from tidemill.wire.request import Request
from tidemill.wire.timestamps import parse_iso8601, parse_rfc822

_MAX_DEPTH = 64
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_CONDITION = re.compile(r"(^|-)if-|-bucket-owner$")
"""Headers that decide whether a request is carried out at all."""

RestParse = Callable[[Request, Mapping[str, str], bytes | BodyStream, list[str]], dict[str, Any]]
"""Arguments: request, path parameters, body, and a list that collects the paths of unknown members."""

_FromBody = Callable[[bytes, list[str]], dict[str, Any]]
_FromXml = Callable[[list[Element]], Any]
"""Converts the elements of a member; a flattened list has several."""


def compile_rest(shape: StructureShape | None, *, form: Literal["json", "xml"], code: str) -> RestParse:
    """Return the reader of an operation's input.

    Args:
        form: Format of structures in the body.
        code: Error code for a query parameter or header of the wrong type.
    """
    if shape is None:
        return lambda request, path, body, unknown: {}
    payload = shape.serialization.get("payload")
    uri_names: list[tuple[str, str]] = []
    queries: dict[str, _HeadMember] = {}
    headers: dict[str, _HeadMember] = {}
    prefixes: list[tuple[str, str]] = []
    for name, member in shape.members.items():
        wire_name = str(member.serialization.get("name", name))
        match member.serialization.get("location"):
            case "uri":
                uri_names.append((wire_name, name))
            case "querystring":
                queries[wire_name] = _HeadMember.of(name, wire_name, member, code)
            case "header":
                headers[wire_name.lower()] = _HeadMember.of(name, wire_name.lower(), member, code, of_s3=form == "xml")
            case "headers":
                prefixes.append((name, wire_name.lower()))
    read_body = _body_reader(shape, payload, form)

    def parse(
        request: Request, path: Mapping[str, str], body: bytes | BodyStream, unknown: list[str]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {name: path[wire_name] for wire_name, name in uri_names if wire_name in path}
        for wire_name, text in request.query_map.items() if queries else ():
            member = queries.get(wire_name)
            if member is not None:
                found[member.name] = member.of_query(text, request)
        for wire_name, text in request.headers.items():
            member = headers.get(wire_name)
            if member is not None and (member.keeps_empty or text.strip()):
                found[member.name] = member.of_header(text)
        for name, prefix in prefixes:
            entries = {
                key[len(prefix) :]: _header_text(text)
                for key, text in request.headers.items()
                if key.startswith(prefix)
            }
            if entries:
                found[name] = entries
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeadMember:
    """A member that stands in a query parameter or in a header.

    S3 compares enumerations without case, and treats an empty header as absent: pyarrow sends
    ``x-amz-checksum-mode: enabled``, s3fs 0.4 an empty ``x-amz-acl``. Conditions are not treated so: ignoring an empty
    one would do what the client wanted to prevent.
    """

    name: str
    wire_name: str
    shape: Shape
    """Shape of the value, or of each value of a list."""
    is_list: bool
    code: str
    keeps_empty: bool
    spellings: Mapping[str, str]
    """Values of an enumeration by their spelling in lower case; empty if the case matters."""

    @classmethod
    def of(cls, name: str, wire_name: str, member: Shape, code: str, *, of_s3: bool = False) -> "_HeadMember":
        inner = member.member if isinstance(member, ListShape) else member
        return cls(
            name=name,
            wire_name=wire_name,
            shape=inner,
            is_list=isinstance(member, ListShape),
            code=code,
            keeps_empty=not of_s3 or _CONDITION.search(wire_name) is not None,
            spellings={value.lower(): value for value in inner.metadata.get("enum", ())} if of_s3 else {},
        )

    def of_query(self, text: str, request: Request) -> Any:
        """Convert a query parameter; a list has one parameter for each value."""
        if not self.is_list:
            return self._value(text, "iso8601")
        return [self._value(each, "iso8601") for key, each in request.query if key == self.wire_name]

    def of_header(self, text: str) -> Any:
        """Convert a header; a list is separated by commas."""
        if not self.is_list:
            return self._value(_header_text(text), "rfc822")
        return [self._value(part.strip(), "rfc822") for part in text.split(",")]

    def _value(self, text: str, timestamp_format: str) -> Any:
        try:
            value = parse_scalar(self.shape, text, timestamp_format=timestamp_format)
        except ValueError as error:
            raise AwsError(f"{self.wire_name}: {error}.", code=self.code) from None
        return self.spellings.get(value.lower(), value) if self.spellings else value


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
            except ValueError as error:
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
    )
