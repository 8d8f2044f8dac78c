"""Parse request JSON with orjson, and report errors in TF Serving's wording.

orjson refuses NaN and Infinity, which TF Serving accepts in predict bodies. So a body that orjson refuses is parsed
again by the standard library, whose errors have a position and a reason; they are translated to the messages of TF
Serving's parser. Both parsers give the same result: integers beyond 64 bits become floats, a number beyond the range of
a double and half a surrogate pair are errors, and the first of several equal keys is used.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from tidemill_serving.errors import RequestError, invalid

MAX_DEPTH = 64
_SHOWN_CHARACTERS = 256
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_STEP = np.zeros(256, dtype=np.int8)
_DEPTH_STEP[list(b"[{")] = 1
_DEPTH_STEP[list(b"]}")] = -1
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)")
_ESCAPE_LENGTH = len("\\ud800")
_HIGH, _LOW, _END = 0xD800, 0xDC00, 0xE000  # first halves of surrogate pairs begin at _HIGH, second at _LOW
_LONG_INTEGER = re.compile(rb"\d{19}")
_DOUBLE_DIGITS = 310  # digits, with the sign, of the longest integer that a double can represent
_WRITER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
    "Illegal trailing comma before end of object": "Missing a name for object member.",
    "Illegal trailing comma before end of array": "Invalid value.",
    "Unterminated string starting at": "Missing a closing quotation mark in string.",
    "Invalid control character at": "Invalid encoding in string.",
    "Invalid \\escape": "Invalid escape character in string.",
    "Invalid \\uXXXX escape": "Incorrect hex digit after \\u escape in string.",
    "Unexpected UTF-8 BOM (decode using utf-8-sig)": "Invalid value.",
    "Extra data": "The document root must not be followed by other values.",
}


def parse(body: bytes, *, keep_integers: bool = False) -> Any:
    """Parse a body, whose nesting is at most `MAX_DEPTH`.

    Args:
        body: UTF-8 text.
        keep_integers: Keep integers beyond 64 bits instead of converting them to floats. Default: False.

    Raises:
        RequestError: INVALID_ARGUMENT with ``JSON Parse error: <reason> at offset: N``.
    """
    _check_depth(body)
    if keep_integers and _LONG_INTEGER.search(body):
        return _parse_slowly(body, read_integer=_integer)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_slowly(body, read_integer=_short_integer)
    # orjson uses the last of several equal keys.
    return _parse_slowly(body, read_integer=_short_integer) if _may_repeat(document, body) else document


def shown(value: Any) -> str:
    """Return a value as JSON for an error message, truncated to 256 characters.

    Args:
        value: A value that JSON can hold, of any size; only what is shown is written.

    Returns:
        At most 256 characters.
    """
    text = ""
    for part in _WRITER.iterencode(value):  # in parts: the value may be as large as a body
        text += part[:_SHOWN_CHARACTERS]
        if len(text) >= _SHOWN_CHARACTERS:
            break
    return text[:_SHOWN_CHARACTERS]


def json_type(value: Any) -> str:
    """Return JSON's name of the type of a parsed value.

    Returns:
        ``Null``, ``Bool``, ``String``, ``Array``, ``Object`` or ``Number``.
    """
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "Bool"
    if isinstance(value, str):
        return "String"
    if isinstance(value, list):
        return "Array"
    return "Object" if isinstance(value, dict) else "Number"


def _may_repeat(value: Any, body: bytes) -> bool:
    """Return whether a key of a request or of its rows may be there twice, since its text is there more often."""
    rows = value if isinstance(value, list) else [value]
    if not rows or not isinstance(rows[0], dict):
        return False
    times = Counter(key for row in rows if isinstance(row, dict) for key in row)
    if any(body.count(orjson.dumps(key)) > count for key, count in times.items()):
        return True
    return isinstance(value, dict) and any(_may_repeat(each, body) for each in value.values())


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        members.update(reversed(pairs))
    return members


class _TooBig(ValueError):
    """A number beyond the range of a double; the argument is its text."""


def _parse_slowly(body: bytes, *, read_integer: Callable[[str], int | float]) -> Any:
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused("Invalid encoding in string.", error.start) from error
    try:
        document = json.loads(text, parse_int=read_integer, parse_float=_float, object_pairs_hook=_first_of_each)
    except json.JSONDecodeError as error:
        raise _parse_error(text, error) from error
    except _TooBig as error:
        raise _refused("Number too big to be stored in double.", _offset(text, text.find(error.args[0]))) from error
    half = _half_pair(text)
    if half >= 0:
        raise _refused("The surrogate pair in string is invalid.", _offset(text, half))
    return document


def _integer(text: str) -> int | float:
    if len(text) > _DOUBLE_DIGITS:
        raise _TooBig(text)
    return int(text)


def _short_integer(text: str) -> int | float:
    value = _integer(text)
    return value if -(2**63) <= value < 2**64 else _float(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _TooBig(text)
    return value


def _half_pair(text: str) -> int:
    """Return the position of an escaped surrogate without its other half, or -1."""
    first = -1
    for match in _ESCAPE.finditer(text):
        code = int(match[1], 16) if match[1] else 0
        if first >= 0 and (match.start() != first + _ESCAPE_LENGTH or not _LOW <= code < _END):
            return first
        if first < 0 and _LOW <= code < _END:
            return match.start()
        first = match.start() if first < 0 and _HIGH <= code < _LOW else -1
    return first


def _parse_error(text: str, error: json.JSONDecodeError) -> RequestError:
    reason = _REASONS.get(error.msg)
    if reason is None:  # "Expecting ',' delimiter"
        closing = "}" if _innermost_bracket(text[: error.pos].encode()) == "{" else "]"
        what = "an object member" if closing == "}" else "an array element"
        reason = f"Missing a comma or {closing} after {what}."
    return _refused(reason, _offset(text, error.pos))


def _refused(reason: str, offset: int) -> RequestError:
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")


def _offset(text: str, position: int) -> int:
    """Convert a position in characters to one in bytes."""
    return len(text[:position].encode())


def _innermost_bracket(body: bytes) -> str:
    """Return the innermost bracket that is still open at the end of a text."""
    closed = 0
    for character in reversed(_brackets(body).decode()):
        if character in "]}":
            closed += 1
        elif closed:
            closed -= 1
        else:
            return character
    return "["


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    steps = _DEPTH_STEP[np.frombuffer(_brackets(body), dtype=np.uint8)]
    depth = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    if depth > MAX_DEPTH:
        raise invalid(f"JSON Parse error: nested {depth} levels deep, at most {MAX_DEPTH} are allowed")


def _brackets(body: bytes) -> bytes:
    """Return the brackets of a text, without those inside strings."""
    if b'"' in body:
        if b"\\" in body:
            body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
        body = b"".join(body.split(b'"')[::2])
    return body.translate(None, _NOT_BRACKETS)
