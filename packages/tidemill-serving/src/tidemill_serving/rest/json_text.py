"""Read request JSON: orjson first, and TF Serving's error texts when it does not parse.

orjson refuses NaN and Infinity, which TF Serving takes in predict bodies, so what it refuses is read once more by the
standard library, whose errors also say where and what; they are put in the words of the parser that TF Serving uses.
"""

import json
import re
from typing import Any

import numpy as np
import orjson

from tidemill_serving.errors import RequestError, invalid

__all__ = ["MAX_DEPTH", "json_type", "parse", "shown"]

MAX_DEPTH = 64
_SHOWN_CHARACTERS = 256
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_DEPTH_STEP = np.zeros(256, dtype=np.int8)
_DEPTH_STEP[list(b"[{")] = 1
_DEPTH_STEP[list(b"]}")] = -1
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
    "Extra data": "The document root must not be followed by other values.",
}


def parse(body: bytes) -> Any:
    """Parse a body, whose nesting is at most `MAX_DEPTH`.

    Raises:
        RequestError: INVALID_ARGUMENT with ``JSON Parse error: <reason> at offset: N``.
    """
    _check_depth(body)
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return _parse_slowly(body)


def shown(value: Any) -> str:
    """A value as JSON for an error message, cut at 256 characters."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)[:_SHOWN_CHARACTERS]


def json_type(value: Any) -> str:
    """JSON's name of the type of a parsed value."""
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "Bool"
    if isinstance(value, str):
        return "String"
    if isinstance(value, list):
        return "Array"
    return "Object" if isinstance(value, dict) else "Number"


def _parse_slowly(body: bytes) -> Any:
    if not body.strip():
        raise invalid("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: Invalid encoding in string. at offset: {error.start}") from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise _parse_error(text, error) from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise invalid(f"JSON Parse error: Number too big to be stored in double. at offset: 0 ({error})") from error


def _parse_error(text: str, error: json.JSONDecodeError) -> RequestError:
    offset = len(text[: error.pos].encode())
    reason = _REASONS.get(error.msg)
    if reason is None:  # "Expecting ',' delimiter"
        closing = "}" if _innermost_bracket(text[: error.pos]) == "{" else "]"
        what = "an object member" if closing == "}" else "an array element"
        reason = f"Missing a comma or {closing} after {what}."
    return invalid(f"JSON Parse error: {reason} at offset: {offset}")


def _innermost_bracket(text: str) -> str:
    open_brackets: list[str] = []
    for character in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        if character in "[{":
            open_brackets.append(character)
        elif character in "]}" and open_brackets:
            open_brackets.pop()
    return open_brackets[-1] if open_brackets else "["


def _check_depth(body: bytes) -> None:
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    brackets = _STRING.sub(b"", body).translate(None, _NOT_BRACKETS)
    steps = _DEPTH_STEP[np.frombuffer(brackets, dtype=np.uint8)]
    depth = int(np.cumsum(steps, dtype=np.int64).max(initial=0))
    if depth > MAX_DEPTH:
        raise invalid(f"JSON Parse error: nested {depth} levels deep, at most {MAX_DEPTH} are allowed")
