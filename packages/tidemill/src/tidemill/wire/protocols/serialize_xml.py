"""Converts output members to XML: documents of S3 (rest-xml), and replies of the query protocol.

S3 has rules that its model does not contain: the namespace, the names of root elements, and one reply that is only a
text. The query protocol's replies consist of Response, Result and ResponseMetadata.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, OperationModel, Shape, StructureShape

from tidemill.wire.protocols.shapes import Functions, Path, fold
from tidemill.wire.reply import HttpReply
from tidemill.wire.timestamps import epoch_seconds, iso8601, rfc822

ToXml = Callable[[str, Any, list[str]], None]
"""Arguments: element name, value, and the list of text pieces to append to."""

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'
_ROOTS = {
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "CopyObject": "CopyObjectResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketTagging": "Tagging",
    "GetBucketVersioning": "VersioningConfiguration",
    "GetObjectAttributes": "GetObjectAttributesResponse",
    "GetObjectTagging": "Tagging",
    "ListBuckets": "ListAllMyBucketsResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListObjectVersions": "ListVersionsResult",
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListParts": "ListPartsResult",
    "UploadPartCopy": "CopyPartResult",
}
"""The model does not name the root elements; clients other than botocore check them."""

_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#13;"}
_TABLE = str.maketrans(_ESCAPES | {chr(code): f"&#{code};" for code in range(0x20) if chr(code) not in "\t\n\r"})


def escape(text: str) -> str:
    """Escape text for an element. Control characters become references, as in S3's XML.

    Args:
        text: Any text.
    """
    return text.translate(_TABLE)


def element(name: str, content: str) -> str:
    """Return one element with text.

    Args:
        content: Text, not escaped.
    """
    return f"<{name}>{escape(content)}</{name}>"


def s3_document(shape: StructureShape, operation_name: str) -> Callable[[Mapping[str, Any]], bytes]:
    """Return the writer of an S3 reply document.

    Args:
        shape: Shape of the output.
        operation_name: Name of the operation, which decides the root.

    Returns:
        Turns members into bytes.
    """
    if operation_name == "GetBucketLocation":
        return _location
    root = _ROOTS.get(operation_name) or str(shape.serialization.get("name", shape.name.removesuffix("Output")))
    members = _compile_to_xml(shape)
    start, end = f'{_HEAD}<{root} xmlns="{S3_NAMESPACE}">', f"</{root}>"

    def write(value: Mapping[str, Any]) -> bytes:
        out = [start]
        members(value, out)
        out.append(end)
        return "".join(out).encode("utf-8", "replace")

    return write


def compile_query_reply(operation: OperationModel) -> Callable[[Mapping[str, Any], str], HttpReply]:
    """Return the writer of an operation's output: a function of the members and the request id.

    Args:
        operation: An operation of botocore's model.
    """
    namespace = operation.service_model.metadata.get("xmlNamespace", "")
    shape = operation.output_shape
    wrapper = shape.serialization.get("resultWrapper", f"{operation.name}Result") if shape is not None else None
    members = _compile_to_xml(shape) if shape is not None else None
    start = f'<{operation.name}Response xmlns="{namespace}">'

    def write(value: Mapping[str, Any], request_id: str) -> HttpReply:
        out = [start]
        if members is not None:
            out.append(f"<{wrapper}>")
            members(value, out)
            out.append(f"</{wrapper}>")
        out.append(
            f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{operation.name}Response>"
        )
        return HttpReply(200, [(b"content-type", b"text/xml")], "".join(out).encode("utf-8", "replace"))

    return write


def _compile_to_xml(shape: StructureShape) -> Callable[[Mapping[str, Any], list[str]], None]:
    """Return the writer of a structure's members, without an enclosing element. Members sent as headers are omitted."""
    write = fold(shape, _XmlWriters())
    return lambda value, out: write("", value, out)


class _XmlWriters(Functions):
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

        def write(name: str, entries: Mapping[Any, Any], out: list[str]) -> None:
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


def _location(value: Mapping[str, Any]) -> bytes:
    region = escape(value.get("LocationConstraint") or "")
    return f'{_HEAD}<LocationConstraint xmlns="{S3_NAMESPACE}">{region}</LocationConstraint>'.encode()
