"""Converts output members to REST replies: status, headers, and a payload (XML, JSON, bytes, a file or a stream)."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from botocore.model import ListShape, OperationModel, Shape, StructureShape

from tidemill.errors import AwsError
from tidemill.wire.protocols.event_stream import compile_event_stream
from tidemill.wire.protocols.serialize_json import compile_to_json, dump
from tidemill.wire.protocols.serialize_xml import s3_document
from tidemill.wire.reply import HttpReply, ReplyBody
from tidemill.wire.timestamps import epoch_seconds, iso8601, rfc822

_CONTENT_TYPES = {"xml": b"application/xml", "json": b"application/json"}
_Head = tuple[str, str, Shape]


def compile_rest_reply(
    operation: OperationModel, *, form: Literal["json", "xml"]
) -> Callable[[Mapping[str, Any], str], HttpReply]:
    """Return the writer of an operation's output: a function of the members and the request id.

    Args:
        operation: An operation of botocore's model.
        form: Form of the body.
    """
    status = int(operation.http.get("responseCode", 200))
    shape = operation.output_shape
    if shape is None:
        return lambda members, request_id: HttpReply(status, [])
    head, prefixes, status_member = _head_members(shape)
    write_body = _body_writer(shape, form, operation.name)

    def write(members: Mapping[str, Any], request_id: str) -> HttpReply:
        headers: list[tuple[str, str]] = []
        length: int | None = None
        for name, wire_name, member in head:
            value = members.get(name)
            if value is None:
                continue
            if wire_name == "content-length":
                length = int(value)
            else:
                headers.append((wire_name, _header_text(member, value)))
        for name, prefix in prefixes:
            headers.extend((f"{prefix}{key}", str(value)) for key, value in (members.get(name) or {}).items())
        body, content_type = write_body(members)
        pairs = header_pairs(headers)
        if content_type is not None and not any(name == b"content-type" for name, _ in pairs):
            pairs.append((b"content-type", content_type))
        code = int(members.get(status_member, status)) if status_member else status
        return HttpReply(code, pairs, body, length)

    return write


def header_pairs(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Encode headers as bytes. Control characters are refused, because data could forge headers with them.

    Raises:
        AwsError: InvalidArgument (400).
    """
    pairs: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if not value.isprintable() and any(
            (ord(letter) < 32 and letter != "\t") or ord(letter) == 127 for letter in value
        ):
            raise AwsError(
                f"The value of the reply header {name} would hold a control character: {value[:128]!r}.",
                code="InvalidArgument",
            )
        pairs.append((name.lower().encode("latin-1"), value.encode("utf-8")))
    return pairs


def _head_members(shape: StructureShape) -> tuple[list[_Head], list[tuple[str, str]], str | None]:
    head: list[_Head] = []
    prefixes: list[tuple[str, str]] = []
    status_member: str | None = None
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        wire_name = str(member.serialization.get("name", name)).lower()
        if location == "header":
            head.append((name, wire_name, member))
        elif location == "headers":
            prefixes.append((name, wire_name))
        elif location == "statusCode":
            status_member = name
    return head, prefixes, status_member


def _body_writer(
    shape: StructureShape, form: str, operation_name: str
) -> Callable[[Mapping[str, Any]], tuple[ReplyBody, bytes | None]]:
    payload = shape.serialization.get("payload")
    if payload is not None:
        member = shape.members[payload]
        if member.serialization.get("eventstream"):
            encode = compile_event_stream(member)
            return lambda members: (encode(members[payload]), b"application/vnd.amazon.eventstream")
        if not isinstance(member, StructureShape):
            return lambda members: (_raw(members.get(payload)), None)
        return _document_writer(member, form, operation_name, payload)
    if all(member.serialization.get("location") for member in shape.members.values()):
        return lambda members: (b"", None)
    return _document_writer(shape, form, operation_name, None)


def _document_writer(
    shape: StructureShape, form: str, operation_name: str, payload: str | None
) -> Callable[[Mapping[str, Any]], tuple[ReplyBody, bytes | None]]:
    content_type = _CONTENT_TYPES[form]
    if form == "xml":
        to_xml = s3_document(shape, operation_name)
        write: Callable[[Any], bytes] = to_xml
    else:
        to_json = compile_to_json(shape, body_only=True)
        write = lambda value: dump(to_json(value))  # noqa: E731 - two ways to one name
    if payload is None:
        return lambda members: (write(members), content_type)

    def write_payload(members: Mapping[str, Any]) -> tuple[ReplyBody, bytes | None]:
        value = members.get(payload)
        return (b"", None) if value is None else (write(value), content_type)

    return write_payload


def _raw(value: Any) -> ReplyBody:
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8")
    return value


def _header_text(shape: Shape, value: Any) -> str:
    if isinstance(shape, ListShape):
        return ",".join(_header_text(shape.member, item) for item in value)
    if shape.type_name == "boolean":
        return "true" if value else "false"
    if shape.type_name == "timestamp":
        chosen = shape.serialization.get("timestampFormat", "rfc822")
        write = {"iso8601": iso8601, "rfc822": rfc822, "unixTimestamp": epoch_seconds}[chosen]
        return value if isinstance(value, str) else str(write(value))
    return str(value)
