"""Converts XML bodies to botocore's shapes. Documents with a DTD, and deep ones, are refused before they are built."""

import base64
import binascii
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder, XMLParser

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.protocols.shapes import Functions, Path, fold
from tidemill.wire.timestamps import parse_iso8601, parse_rfc822

__all__ = ["compile_xml", "parse_document", "parse_scalar"]

_MAX_DEPTH = 64
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)

FromXml = Callable[[list[Element]], Any]
"""Converts the elements of a member; a flattened list has several."""


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


def compile_xml(shape: StructureShape) -> Callable[[Element], dict[str, Any]]:
    """Return the reader of a structure that is a document's root.

    Unknown elements are ignored, as by AWS.
    """
    read = fold(shape, _Readers())
    return lambda root: read([root])


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


class _Readers(Functions):
    """Builds the reader of each part of a shape."""

    def structure(self, shape: StructureShape, inside: Mapping[str, FromXml], at: Path) -> FromXml:
        members: dict[str, tuple[str, FromXml]] = {}
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

    def list(self, shape: ListShape, item: FromXml, at: Path) -> FromXml:
        if shape.serialization.get("flattened"):
            return lambda elements: [item([element]) for element in elements]
        tag = shape.member.serialization.get("name", "member")
        return lambda elements: [item([child]) for child in elements[0] if child.tag == tag]

    def map(self, shape: MapShape, key: FromXml, value: FromXml, at: Path) -> FromXml:
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

    def scalar(self, shape: Shape, at: Path) -> FromXml:
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
