"""Output members into JSON text by the model; members that the model does not have are dropped."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from tidemill.wire.timestamps import epoch_seconds, iso8601, rfc822

__all__ = ["ToJson", "compile_to_json", "dump"]

ToJson = Callable[[Any], Any]

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def dump(document: Any) -> bytes:
    """Write JSON in ASCII.

    Raises:
        ValueError: A number is not finite.
    """
    return _ENCODER.encode(document).encode("ascii")


def compile_to_json(shape: Shape | None, *, body_only: bool = False) -> ToJson:
    """Make the writer of a shape.

    Args:
        shape: What is written; None writes an empty object.
        body_only: Leave out members that stand in headers or the status.
    """
    if shape is None:
        return lambda value: {}
    if isinstance(shape, StructureShape):
        return _structure(shape, {}, body_only=body_only)
    return _compile(shape, {})


def _compile(shape: Shape, memo: dict[str, ToJson]) -> ToJson:
    if isinstance(shape, StructureShape):
        return _structure(shape, memo)
    if isinstance(shape, ListShape):
        inner = _compile(shape.member, memo)
        return lambda value: [inner(item) for item in value]
    if isinstance(shape, MapShape):
        inner = _compile(shape.value, memo)
        return lambda value: {str(key): inner(item) for key, item in value.items()}
    if shape.type_name == "timestamp":
        return _TIMES[shape.serialization.get("timestampFormat", "unixTimestamp")]
    return _SCALARS[shape.type_name]


def _structure(shape: StructureShape, memo: dict[str, ToJson], *, body_only: bool = False) -> ToJson:
    known = memo.get(shape.name)
    if known is not None:
        return known
    members: dict[str, tuple[str, ToJson]] = {}

    def write(value: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, item in value.items():
            entry = members.get(name)
            if entry is not None and item is not None:
                found[entry[0]] = entry[1](item)
        return found

    memo[shape.name] = write
    for name, member in shape.members.items():
        if not (body_only and member.serialization.get("location")):
            members[name] = (member.serialization.get("name", name), _compile(member, memo))
    return write


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
