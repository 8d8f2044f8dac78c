"""Output members into XML text by the model: for S3 (rest-xml) and for the query protocol."""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.wire.timestamps import epoch_seconds, iso8601, rfc822

__all__ = ["ToXml", "compile_to_xml", "element", "escape"]

ToXml = Callable[[str, Any, list[str]], None]
"""Element name, value, and the list of text pieces to add to."""

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
_TABLE = str.maketrans(_ESCAPES | {chr(code): f"&#{code};" for code in range(0x20) if chr(code) not in "\t\n\r"})


def escape(text: str) -> str:
    """Make text safe inside an element. Control characters become references, as S3 writes them."""
    return text.translate(_TABLE)


def element(name: str, content: str) -> str:
    """One element with text."""
    return f"<{name}>{escape(content)}</{name}>"


def compile_to_xml(shape: StructureShape) -> Callable[[Mapping[str, Any], list[str]], None]:
    """Make the writer of a structure's members, without an element around them. Head members are left out."""
    return _members(shape, {})


def _compile(shape: Shape, memo: dict[str, Any]) -> ToXml:
    if isinstance(shape, StructureShape):
        return _structure(shape, memo)
    if isinstance(shape, ListShape):
        return _list(shape, memo)
    if isinstance(shape, MapShape):
        return _map(shape, memo)
    text = _text_of(shape)

    def write(name: str, value: Any, out: list[str]) -> None:
        out.append(f"<{name}>{text(value)}</{name}>")

    return write


def _members(shape: StructureShape, memo: dict[str, Any]) -> Callable[[Mapping[str, Any], list[str]], None]:
    known = memo.get(shape.name)
    if known is not None:
        return known
    writers: list[tuple[str, str, ToXml]] = []

    def write(value: Mapping[str, Any], out: list[str]) -> None:
        for name, wire_name, inner in writers:
            item = value.get(name)
            if item is not None:
                inner(wire_name, item, out)

    memo[shape.name] = write
    for name, member in shape.members.items():
        if not member.serialization.get("location") and not member.serialization.get("xmlAttribute"):
            writers.append((name, str(member.serialization.get("name", name)), _compile(member, memo)))
    return write


def _structure(shape: StructureShape, memo: dict[str, Any]) -> ToXml:
    members = _members(shape, memo)
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
        members(value, out)
        out.append(f"</{name}>")

    return write


def _list(shape: ListShape, memo: dict[str, Any]) -> ToXml:
    inner = _compile(shape.member, memo)
    own_name = shape.member.serialization.get("name")
    if shape.serialization.get("flattened"):

        def write_flat(name: str, value: list[Any], out: list[str]) -> None:
            for item in value:
                inner(own_name or name, item, out)

        return write_flat
    tag = own_name or "member"

    def write(name: str, value: list[Any], out: list[str]) -> None:
        out.append(f"<{name}>")
        for item in value:
            inner(tag, item, out)
        out.append(f"</{name}>")

    return write


def _map(shape: MapShape, memo: dict[str, Any]) -> ToXml:
    inner = _compile(shape.value, memo)
    key_tag = shape.key.serialization.get("name", "key")
    value_tag = shape.value.serialization.get("name", "value")
    flattened = shape.serialization.get("flattened")

    def write(name: str, value: Mapping[str, Any], out: list[str]) -> None:
        entry = name if flattened else "entry"
        out.append("" if flattened else f"<{name}>")
        for key, item in value.items():
            out.append(f"<{entry}>{element(key_tag, str(key))}")
            inner(value_tag, item, out)
            out.append(f"</{entry}>")
        out.append("" if flattened else f"</{name}>")

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
