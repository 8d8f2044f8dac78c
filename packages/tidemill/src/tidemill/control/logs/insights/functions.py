"""The functions and the aggregations of the query language."""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tidemill.control.logs.insights.values import EventRow, Expression, Instant, Value, compared, number, rank, text

Arity = tuple[int, int]
"""Least and largest number of arguments."""

Function = Callable[..., Value]
"""Computes a value from the values of its arguments."""

_ANY = 100


def _numeric(compute: Callable[[float], float]) -> Function:
    """Return a function of one number, whose result is missing if its argument is no number, or has no result."""

    def function(value: Value) -> Value:
        given = number(value)
        try:
            return None if given is None else compute(given)
        except (ValueError, OverflowError):
            return None

    return function


def _textual(compute: Callable[[str], Value]) -> Function:
    """Return a function of one text; a missing argument is an empty one."""

    def function(value: Value) -> Value:
        return compute(text(value))

    return function


def _is_present(value: Value) -> Value:
    return value is not None


def _coalesce(*values: Value) -> Value:
    return next((value for value in values if value is not None), None)


def _concat(*values: Value) -> Value:
    return "".join(map(text, values))


def _greatest(*values: Value) -> Value:
    return max(values, key=rank)


def _least(*values: Value) -> Value:
    return min(values, key=rank)


def _contains(value: Value, part: Value) -> Value:
    return int(text(part) in text(value))


def _replace(value: Value, old: Value, new: Value) -> Value:
    return text(value).replace(text(old), text(new))


def _substr(value: Value, begin: Value, length: Value = None) -> Value:
    first, count = int(number(begin) or 0), number(length)
    return text(value)[first:] if count is None else text(value)[first : first + int(count)]


def _bin(at: Value, period: Value) -> Value:
    milliseconds, width = number(at), int(number(period) or 1)
    return None if milliseconds is None else Instant(milliseconds // width * width)


FUNCTIONS: Mapping[str, tuple[Arity, Function]] = {
    "abs": ((1, 1), _numeric(abs)),
    "bin": ((2, 2), _bin),
    "ceil": ((1, 1), _numeric(math.ceil)),
    "coalesce": ((1, _ANY), _coalesce),
    "concat": ((1, _ANY), _concat),
    "floor": ((1, 1), _numeric(math.floor)),
    "greatest": ((1, _ANY), _greatest),
    "isblank": ((1, 1), _textual(lambda value: not value.strip())),
    "isempty": ((1, 1), _textual(lambda value: not value)),
    "ispresent": ((1, 1), _is_present),
    "least": ((1, _ANY), _least),
    "log": ((1, 1), _numeric(math.log)),
    "lower": ((1, 1), _textual(str.lower)),
    "replace": ((3, 3), _replace),
    "sqrt": ((1, 1), _numeric(math.sqrt)),
    "strcontains": ((2, 2), _contains),
    "strlen": ((1, 1), _textual(len)),
    "substr": ((2, 3), _substr),
    "tolower": ((1, 1), _textual(str.lower)),
    "toupper": ((1, 1), _textual(str.upper)),
    "trim": ((1, 1), _textual(str.strip)),
    "upper": ((1, 1), _textual(str.upper)),
}
"""By name. ``bin`` gets the time stamp as its first argument, which queries do not write."""


class GroupValue(Protocol):
    """Computes a value of a group of events."""

    def add(self, row: EventRow) -> None:
        """Add an event.

        Args:
            row: Its fields.
        """
        ...

    def value(self) -> Value:
        """Return the value of the events so far."""
        ...


@dataclass(slots=True)
class _Count:
    of: Expression
    count: int = 0

    def add(self, row: EventRow) -> None:
        self.count += self.of(row) is not None

    def value(self) -> Value:
        return self.count


@dataclass(slots=True)
class _CountDistinct:
    of: Expression
    seen: set[str] = field(default_factory=set)

    def add(self, row: EventRow) -> None:
        value = self.of(row)
        if value is not None:
            self.seen.add(text(value))

    def value(self) -> Value:
        return len(self.seen)


@dataclass(slots=True)
class _Extreme:
    of: Expression
    comparison: str
    best: Value = None

    def add(self, row: EventRow) -> None:
        value = self.of(row)
        if self.best is None or compared(self.comparison, value, self.best):
            self.best = value

    def value(self) -> Value:
        return self.best


@dataclass(slots=True)
class _Numbers:
    """A statistic of all numbers; 8 bytes are kept of each."""

    of: Expression
    compute: "Callable[[array[float]], float]"
    numbers: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, row: EventRow) -> None:
        value = number(self.of(row))
        if value is not None:
            self.numbers.append(value)

    def value(self) -> Value:
        try:
            return self.compute(self.numbers) if self.numbers else None
        except OverflowError:
            return None


@dataclass(slots=True)
class _Outermost:
    """The value of the event with the least or the largest time stamp."""

    of: Expression
    comparison: str
    at: Value = None
    found: Value = None

    def add(self, row: EventRow) -> None:
        value, at = self.of(row), row["@timestamp"]
        if value is not None and (self.at is None or compared(self.comparison, at, self.at)):
            self.at, self.found = at, value

    def value(self) -> Value:
        return self.found


def _percentile(of: Expression, share: Expression) -> GroupValue:
    """Return the nearest-rank percentile; its share is a constant."""
    part = number(share(EventRow())) or 0.0

    def compute(numbers: Sequence[float]) -> float:
        return sorted(numbers)[max(0, math.ceil(part / 100 * len(numbers)) - 1)]

    return _Numbers(of, compute)


def _median(of: Expression) -> GroupValue:
    return _percentile(of, lambda row: 50)


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def _deviation(numbers: Sequence[float]) -> float:
    mean = _mean(numbers)
    return math.sqrt(_mean([(each - mean) ** 2 for each in numbers]))


AGGREGATIONS: Mapping[str, tuple[Arity, Callable[..., GroupValue]]] = {
    "avg": ((1, 1), partial(_Numbers, compute=_mean)),
    "count": ((1, 1), _Count),
    "count_distinct": ((1, 1), _CountDistinct),
    "earliest": ((1, 1), partial(_Outermost, comparison="<")),
    "latest": ((1, 1), partial(_Outermost, comparison=">=")),
    "max": ((1, 1), partial(_Extreme, comparison=">")),
    "median": ((1, 1), _median),
    "min": ((1, 1), partial(_Extreme, comparison="<")),
    "pct": ((2, 2), _percentile),
    "stddev": ((1, 1), partial(_Numbers, compute=_deviation)),
    "sum": ((1, 1), partial(_Numbers, compute=math.fsum)),
}
"""By name. ``count(*)`` counts the events, ``count(field)`` those that have the field."""
