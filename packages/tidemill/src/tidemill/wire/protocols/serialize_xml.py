"""Converts output members to XML text according to the model: for S3 (rest-xml) and for the query protocol."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.wire.protocols.shapes import Functions, Path, fold
from tidemill.wire.timestamps import epoch_seconds, iso8601, rfc822

__all__ = ["ToXml", "compile_to_xml", "element", "escape"]

ToXml = Callable[[str, Any, list[str]], None]
"""Arguments: element name, value, and the list of text pieces to append to."""

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
_TABLE = str.maketrans(_ESCAPES | {chr(code): f"&#{code};" for code in range(0x20) if chr(code) not in "\t\n\r"})


def escape(text: str) -> str:
    """Escape text for an element. Control characters become references, as in S3's XML."""
    return text.translate(_TABLE)


def element(name: str, content: str) -> str:
    """Return one element with text."""
    return f"<{name}>{escape(content)}</{name}>"


def compile_to_xml(shape: StructureShape) -> Callable[[Mapping[str, Any], list[str]], None]:
    """Return the writer of a structure's members, without an enclosing element. Members sent as headers are omitted."""
    write = fold(shape, _Writers())
    return lambda value, out: write("", value, out)


class _Writers(Functions):
    """Builds the writer of each part of a shape. The outermost structure has no enclosing element."""

    def structure(self, shape: StructureShape, inside: Mapping[str, ToXml], at: Path) -> ToXml:
        writers = [
            (name, str(member.serialization.get("name", name)), inside[name])
            for name, member in shape.members.items()
            if not member.serialization.get("location") and not member.serialization.get("xmlAttribute")
        ]

        def write_members(name: str, value: Mapping[str, Any], out: list[str]) -> None:
            for member, wire_name, inner in writers:
                item = value.get(member)
                if item is not None:
                    inner(wire_name, item, out)

        return _within_element(shape, write_members) if at else write_members

    def list(self, shape: ListShape, item: ToXml, at: Path) -> ToXml:
        own_name = shape.member.serialization.get("name")
        if shape.serialization.get("flattened"):

            def write_flat(name: str, value: list[Any], out: list[str]) -> None:
                for one in value:
                    item(own_name or name, one, out)

            return write_flat
        tag = own_name or "member"

        def write(name: str, value: list[Any], out: list[str]) -> None:
            out.append(f"<{name}>")
            for one in value:
                item(tag, one, out)
            out.append(f"</{name}>")

        return write

    def map(self, shape: MapShape, key: ToXml, value: ToXml, at: Path) -> ToXml:
        key_tag = shape.key.serialization.get("name", "key")
        value_tag = shape.value.serialization.get("name", "value")
        flattened = shape.serialization.get("flattened")

        def write(name: str, entries: Mapping[str, Any], out: list[str]) -> None:
            entry = name if flattened else "entry"
            out.append("" if flattened else f"<{name}>")
            for each, one in entries.items():
                out.append(f"<{entry}>{element(key_tag, str(each))}")
                value(value_tag, one, out)
                out.append(f"</{entry}>")
            out.append("" if flattened else f"</{name}>")

        return write

    def scalar(self, shape: Shape, at: Path) -> ToXml:
        text = _text_of(shape)

        def write(name: str, value: Any, out: list[str]) -> None:
            out.append(f"<{name}>{text(value)}</{name}>")

        return write


def _within_element(shape: StructureShape, write_members: ToXml) -> ToXml:
    """Return the writer of a structure's element, with its attributes."""
    attributes = [
        (name, str(member.serialization.get("name", name)))
        for name, member in shape.members.items()
        if member.serialization.get("xmlAttribute")
    ]
    namespace = shape.serialization.get("xmlNamespace", {})
    prefix = f' xmlns:{namespace["prefix"]}="{namespace["uri"]}"' if "prefix" in namespace else ""

    def write(name: str, value: Mapping[str, Any], out: list[str]) -> None:
        marks = "".join(f' {tag}="{escape(str(value[key]))}"' for key, tag in attributes if value.get(key))
        out.append(f"<{name}{prefix if marks else ''}{marks}>")
        write_members(name, value, out)
        out.append(f"</{name}>")

    return write


def _text_of(shape: Shape) -> Callable[[Any], str]:
    if shape.type_name == "boolean":
        return lambda value: "true" if value else "false"
    if shape.type_name == "blob":
        return lambda value: base64.b64encode(value).decode("ascii")
    if shape.type_name == "timestamp":
        chosen = shape.serialization.get("timestampFormat", "iso8601")
        write = {"iso8601": iso8601, "rfc822": rfc822, "unixTimestamp": epoch_seconds}[chosen]
        return lambda value: str(write(value))
    return lambda value: escape(str(value))
