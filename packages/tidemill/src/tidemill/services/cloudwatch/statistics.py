"""CloudWatch's statistics: points aggregated over periods.

The rules for periods, and for the start of the first one, are from the API reference of GetMetricStatistics.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from tidemill.errors import AwsError


class CountedPoint(NamedTuple):
    """A value that occurred several times.

    Attributes:
        at_ms: Time in milliseconds since the epoch.
        count: How often it occurred; at least once.
    """

    at_ms: int
    value: float
    count: int


Point = tuple[int, float] | CountedPoint
"""Time in milliseconds since the epoch, and value."""


@dataclass(slots=True)
class PeriodValues:
    """The values of one period; at least one.

    Attributes:
        single: PeriodValues that occurred once, in the order of their points.
        counted: Further values, and how often each occurred.
    """

    single: list[float] = field(default_factory=list)
    counted: list[tuple[float, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.single) + sum(count for _, count in self.counted)

    def __iter__(self) -> Iterator[float]:
        """Yield each value once."""
        yield from self.single
        yield from (value for value, _ in self.counted)

    @property
    def sum(self) -> float:
        """Their sum."""
        return math.fsum((*self.single, *(value * count for value, count in self.counted)))

    def percentile(self, fraction: float) -> float:
        """Interpolate linearly between the two nearest of the sorted values.

        Args:
            fraction: From 0 to 1.
        """
        place = fraction * (len(self) - 1)
        below = math.floor(place)
        if not self.counted:
            values = sorted(self.single)
            low, high = values[below], values[min(below + 1, len(values) - 1)]
        else:
            ranked = sorted([*self.counted, *((value, 1) for value in self.single)])
            low, high = _ranked(ranked, below), _ranked(ranked, min(below + 1, len(self) - 1))
        return low + (high - low) * (place - below)


Statistic = Callable[[PeriodValues], float]
"""Aggregates the values of one period to a single value."""

_SHORT_PERIODS_S = (1, 5, 10, 20, 30)
_MINUTE_S = 60
_PERCENTILE = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,10})?|100(?:\.0+)?)")
_SIMPLE: Mapping[str, Statistic] = {
    "SampleCount": len,
    "Average": lambda values: values.sum / len(values),
    "Sum": lambda values: values.sum,
    "Minimum": min,
    "Maximum": max,
}


def statistic(name: str, member: str) -> Statistic:
    """Return a statistic by CloudWatch's name.

    Args:
        name: One of the five simple ones, or a percentile such as ``p99`` or ``p99.9``.
        member: The request member, for the error.

    Raises:
        AwsError: InvalidParameterValue: the statistic is not supported.
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    found = _PERCENTILE.fullmatch(name)
    if found is None:
        raise invalid(
            f"Value {name!r} at '{member}' is not allowed: this version offers {', '.join(_SIMPLE)} and percentiles"
            " from p0 to p100, e.g. p99.9"
        )
    fraction = float(found[1]) / 100
    return lambda values: values.percentile(fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The periods between two times.

    Attributes:
        start_ms: Beginning of the first period, in milliseconds since the epoch.
        end_ms: End of the window, exclusive.
        period_ms: Length of a period.
    """

    start_ms: int
    end_ms: int
    period_ms: int

    @classmethod
    def of(cls, start: datetime, end: datetime, *, period_s: int) -> "Window":
        """Return the window of a request. Its start is rounded down to the minute, or to a period below a minute.

        Raises:
            AwsError: InvalidParameterValue or InvalidParameterCombination.
        """
        if period_s not in _SHORT_PERIODS_S and period_s % _MINUTE_S:
            raise invalid(f"The parameter Period must be 1, 5, 10, 20, 30 or a multiple of 60 seconds, not {period_s}.")
        if start >= end:
            raise combination(
                f"The parameter StartTime, {start.isoformat()}, must be less than the parameter EndTime,"
                f" {end.isoformat()}."
            )
        start_s = math.floor(start.timestamp())
        return cls(
            start_ms=(start_s - start_s % min(period_s, _MINUTE_S)) * 1000,
            end_ms=math.ceil(end.timestamp() * 1000),
            period_ms=period_s * 1000,
        )

    @property
    def periods(self) -> int:
        """Number of periods, including a shorter one at the end."""
        return -(-(self.end_ms - self.start_ms) // self.period_ms)

    def grouped(self, points: Iterable[Point]) -> list[tuple[int, PeriodValues]]:
        """Return the periods with points, in order: start in milliseconds, and values in the order of the points.

        Args:
            points: The points, in any order.
        """
        groups: dict[int, PeriodValues] = {}
        for point in points:
            at_ms = point[0]
            if self.start_ms <= at_ms < self.end_ms:
                values = groups.setdefault((at_ms - self.start_ms) // self.period_ms, PeriodValues())
                if isinstance(point, CountedPoint):
                    values.counted.append((point.value, point.count))
                else:
                    values.single.append(point[1])
        return [(self.start_ms + number * self.period_ms, groups[number]) for number in sorted(groups)]


def invalid(message: str) -> AwsError:
    """Return the error for a parameter that is out of range.

    Args:
        message: Names the parameter and the allowed values.

    Returns:
        InvalidParameterValue, HTTP status 400.
    """
    return AwsError(message, code="InvalidParameterValue")


def combination(message: str) -> AwsError:
    """Return the error for parameters that exclude each other.

    Returns:
        InvalidParameterCombination, HTTP status 400.
    """
    return AwsError(message, code="InvalidParameterCombination")


def _ranked(ranked: Sequence[tuple[float, int]], place: int) -> float:
    """Return the value at a place of sorted values, each of which occurs as often as its count says."""
    for value, count in ranked:
        place -= count
        if place < 0:
            return value
    return ranked[-1][0]
