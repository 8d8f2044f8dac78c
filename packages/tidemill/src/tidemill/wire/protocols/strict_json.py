"""Parses JSON as AWS's services do: every text has one meaning, or is refused.

The standard library's parser accepts NaN, 1e999, duplicate keys, UTF-16 and lone surrogates, and exhausts the stack on
deep nesting. This parser refuses each of these with a SerializationException.
"""

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from tidemill.errors import AwsError

__all__ = ["MAX_DEPTH", "MAX_DIGITS", "loads"]

MAX_DEPTH = 64
MAX_DIGITS = 40
"""Longer integers are refused while parsing; the model's own bounds are checked by validation."""

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: bytes) -> Any:
    """Parse one JSON document.

    Args:
        data: UTF-8 text without a byte-order mark.

    Returns:
        Dictionaries, lists, strings, integers, finite floats, booleans and None.

    Raises:
        AwsError: SerializationException (400), with the reason.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(f"the body is not UTF-8 (byte {error.start})")
    if text.startswith("\ufeff"):
        _refuse("the body begins with a byte-order mark; send plain UTF-8")
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text)
    try:
        document = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        _refuse(f"the body is not JSON: {error.msg} at character {error.pos}")
    if _SURROGATE.search(text):
        _check_surrogates(document)
    return document


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        first = text[token.start()]
        if first in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse(f"the body is nested deeper than {MAX_DEPTH} levels")
        elif first != '"':
            depth -= 1


def _check_surrogates(document: Any) -> None:
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                _refuse("a string holds half of a surrogate pair, which is no character")
        elif isinstance(value, dict):
            pending.extend(value.keys())
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        _refuse(f"the key {twice[:64]!r} appears twice in one object")
    return found


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        _refuse(f"an integer of {len(text)} digits; at most {MAX_DIGITS} are read")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        _refuse(f"the number {text[:32]} is out of range")
    return value


def _constant(text: str) -> NoReturn:
    _refuse(f"{text} is not JSON; numbers must be finite")


def _refuse(reason: str) -> NoReturn:
    raise AwsError(f"The request cannot be read: {reason}.", code="SerializationException", status=400)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
