"""The values of a query: fields of events, and how they are compared, ordered and shown."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

_SHOWN_WHOLE = 1e15
"""Whole numbers below this are shown without a decimal point."""

_FLOAT_DIGITS = 300
"""A float can hold every integer with fewer digits, nearly."""


class Instant(int):
    """Milliseconds since the epoch, shown as a date."""


Value = str | float | bool | None
"""A missing field is None."""


class EventRow(dict[str, Value]):
    """Fields by name. The fields of a message that is a JSON object are found when another one is first asked for."""

    is_searched = False

    def __missing__(self, name: str) -> Value:
        if not self.is_searched:
            self.is_searched = True
            for found, value in _discovered(self.get("@message")):
                self.setdefault(found, value)
        return self.get(name)


Expression = Callable[[EventRow], Value]
"""Computes a value from the fields of an event or of a group of events."""


def number(value: Value) -> float | None:
    """Return a value as a number, also if it is text that is one; None for others, and for what no float can hold.

    Args:
        value: Any value.
    """
    if value is None or isinstance(value, bool):
        return None
    try:
        value = float(value) if isinstance(value, str) else value
        return value if math.isfinite(value) else None
    except (ValueError, OverflowError):
        return None


def text(value: Value) -> str:
    """Return a value as it is shown; a missing one as nothing.

    Args:
        value: Any value.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Instant):
        return datetime.fromtimestamp(value / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    if isinstance(value, float) and value.is_integer() and abs(value) < _SHOWN_WHOLE:
        return str(int(value))
    return str(value)


def is_true(value: Value) -> bool:
    """Return whether a filter keeps an event for which it has this value: true, or a number other than 0.

    Args:
        value: Any value.
    """
    return bool(value) and not isinstance(value, str)


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
"""Comparisons by their operator, of two numbers or two texts."""


def compared(operator: str, left: Value, right: Value) -> bool:
    """Return the result of a comparison, which is false for a missing value.

    Args:
        operator: Of `COMPARISONS`.
        left: A value.
        right: A value.
    """
    if left is None or right is None:
        return False
    return COMPARISONS[operator](*_comparable(left, right))


def rank(value: Value) -> tuple[int, Any]:
    """Return the key by which values are sorted: missing ones, numbers, text.

    Args:
        value: Any value.
    """
    if value is None:
        return 0, 0
    as_number = number(value)
    return (1, as_number) if as_number is not None else (2, text(value))


def _comparable(left: Value, right: Value) -> tuple[Any, Any]:
    one, other = number(left), number(right)
    return (one, other) if one is not None and other is not None else (text(left), text(right))


def _integer(digits: str) -> float | None:
    return int(digits) if len(digits) < _FLOAT_DIGITS else number(digits)


def _discovered(message: Value) -> Iterator[tuple[str, Value]]:
    if not isinstance(message, str) or not message.lstrip().startswith("{"):
        return
    try:
        # Python's json accepts NaN and Infinity, which no other number can be compared with: they are missing.
        document = json.loads(message, parse_constant=lambda name: None, parse_float=number, parse_int=_integer)
    except (ValueError, RecursionError):
        return
    # Values inside are named ``outer.inner`` and ``list.0``; an object or a list itself is shown as JSON.
    waiting: list[tuple[str, Any]] = [("", document)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, (dict, list)):
            inner: Iterable[tuple[object, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(f"{name}.{key}" if name else str(key), each) for key, each in inner]
            if name:
                yield name, json.dumps(value, ensure_ascii=False)
        elif value is not None:
            yield name, value
