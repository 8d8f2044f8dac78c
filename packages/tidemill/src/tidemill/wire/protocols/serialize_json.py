"""Converts output members to JSON text according to the model; members that the model does not have are dropped."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.wire.protocols.shapes import Functions, Path, fold
from tidemill.wire.reply import HttpReply
from tidemill.wire.timestamps import epoch_seconds, iso8601, rfc822

ToJson = Callable[[Any], Any]

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def dump(document: Any) -> bytes:
    """Serialize as ASCII JSON.

    Raises:
        ValueError: A number is not finite.
    """
    return _ENCODER.encode(document).encode("ascii")


def compile_to_json(shape: Shape | None, *, body_only: bool = False) -> ToJson:
    """Return the writer of a shape.

    Args:
        shape: The shape to write; None writes an empty object.
        body_only: Whether to omit members that are sent as headers or as the status.
    """
    if shape is None:
        return lambda value: {}
    return fold(shape, _JsonWriters(body_only))


def compile_json_reply(shape: Shape | None, *, version: str) -> Callable[[Mapping[str, Any], str], HttpReply]:
    """Make the writer of an operation's output: a function of the members and the request id.

    Args:
        shape: The operation's output; None writes an empty object.
        version: Version of the JSON protocol in the content type.
    """
    to_json = compile_to_json(shape)
    content_type = f"application/x-amz-json-{version}".encode()

    def write(members: Mapping[str, Any], request_id: str) -> HttpReply:
        return HttpReply(200, [(b"content-type", content_type)], dump(to_json(members)))

    return write


@dataclass(frozen=True, slots=True)
class _JsonWriters(Functions):
    """Builds the writer of each part of a shape."""

    body_only: bool

    def structure(self, shape: StructureShape, inside: Mapping[str, ToJson], at: Path) -> ToJson:
        members = {
            name: (member.serialization.get("name", name), inside[name])
            for name, member in shape.members.items()
            if at or not (self.body_only and member.serialization.get("location"))
        }

        def write(value: Mapping[str, Any]) -> dict[str, Any]:
            found = {}
            for name, item in value.items():
                entry = members.get(name)
                if entry is not None and item is not None:
                    found[entry[0]] = entry[1](item)
            return found

        return write

    def list(self, shape: ListShape, item: ToJson, at: Path) -> ToJson:
        return lambda value: [item(one) for one in value]

    def map(self, shape: MapShape, key: ToJson, value: ToJson, at: Path) -> ToJson:
        return lambda entries: {str(name): value(one) for name, one in entries.items()}

    def scalar(self, shape: Shape, at: Path) -> ToJson:
        if shape.type_name == "timestamp":
            return _TIMES[shape.serialization.get("timestampFormat", "unixTimestamp")]
        return _SCALARS[shape.type_name]


def _blob(value: bytes | str) -> str:
    return base64.b64encode(value.encode("utf-8") if isinstance(value, str) else value).decode("ascii")


_TIMES: dict[str, ToJson] = {"unixTimestamp": epoch_seconds, "iso8601": iso8601, "rfc822": rfc822}
_SCALARS: dict[str, ToJson] = {
    "string": str,
    "character": str,
    "integer": int,
    "long": int,
    "boolean": bool,
    "double": float,
    "float": float,
    "blob": _blob,
}
