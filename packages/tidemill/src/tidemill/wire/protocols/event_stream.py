"""Replies that are a stream of events (``application/vnd.amazon.eventstream``), e.g. of a streaming invocation.

A handler returns an asynchronous iterator of one-member mappings, ``{"PayloadPart": {"Bytes": b"..."}}``. A member that
the model marks as an exception becomes an exception message.
"""

import struct
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from botocore.model import Shape, StructureShape

from tidemill.wire.protocols.serialize_json import compile_to_json, dump

_STRING = 7


def encode_message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message: lengths, their CRC, headers, payload, and a CRC of everything.

    Args:
        payload: Bytes of the event.
    """
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(packed) + len(payload), len(packed))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + packed + payload
    return message + struct.pack(">I", zlib.crc32(message))


def compile_event_stream(shape: Shape) -> Callable[[AsyncIterator[Mapping[str, Any]]], AsyncIterator[bytes]]:
    """Return the encoder of an event stream's shape.

    Args:
        shape: A shape of botocore's model.

    Returns:
        Turns events into messages.
    """
    members = shape.members if isinstance(shape, StructureShape) else {}
    encoders = {name: _event(name, member) for name, member in members.items() if isinstance(member, StructureShape)}

    async def encode(events: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
        async for event in events:
            for name, value in event.items():
                yield encoders[name](value)

    return encode


def _event(name: str, shape: StructureShape) -> Callable[[Mapping[str, Any]], bytes]:
    kind = "exception" if shape.metadata.get("exception") else "event"
    for member_name, member in shape.members.items():
        if member.serialization.get("eventpayload") and member.type_name == "blob":
            headers = _head(kind, name, "application/octet-stream")
            return lambda value: encode_message(headers, value[member_name])
    to_json = compile_to_json(shape)
    json_headers = _head(kind, name, "application/json")
    return lambda value: encode_message(json_headers, dump(to_json(value)))


def _head(kind: str, name: str, content_type: str) -> dict[str, str]:
    return {f":{kind}-type": name, ":content-type": content_type, ":message-type": kind}


def _header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return struct.pack(">B", len(key)) + key + struct.pack(">BH", _STRING, len(text)) + text
