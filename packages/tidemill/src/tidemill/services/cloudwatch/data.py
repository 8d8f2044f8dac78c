"""GetMetricData: several metrics in one request, in pages."""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from tidemill.errors import AwsError
from tidemill.services.cloudwatch.dimensions import MetricSources
from tidemill.services.cloudwatch.statistics import Point, Statistic, Window, combination, invalid, statistic
from tidemill.services.times import when

_QUERIES_MAX = 500
_POINTS_MAX = 100_800
_TOKEN = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One query, checked."""

    id: str
    label: str
    metric: Mapping[str, Any]
    unit: str | None
    window: Window
    statistic: Statistic


@dataclass(frozen=True, slots=True)
class _Result:
    wanted: _Wanted
    times: Sequence[datetime] = field(default_factory=list)
    values: Sequence[float] = field(default_factory=list)


async def metric_data(metrics: MetricSources, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer GetMetricData.

    Raises:
        AwsError: InvalidParameterValue, InvalidParameterCombination or InvalidNextToken.
    """
    wanted = _checked(request)
    descending = request.get("ScanBy", "TimestampDescending") == "TimestampDescending"
    results = [
        await asyncio.to_thread(
            _result, each, await metrics.points(each.metric, each.window, unit=each.unit), descending=descending
        )
        for each in wanted
    ]
    limit = request.get("MaxDatapoints", _POINTS_MAX)
    if not 1 <= limit <= _POINTS_MAX:
        raise invalid(f"The parameter MaxDatapoints must be 1 to {_POINTS_MAX}, not {limit}.")
    return _page(results, begin=_begin(request.get("NextToken")), limit=limit)


def _checked(request: Mapping[str, Any]) -> list[_Wanted]:
    queries = request["MetricDataQueries"]
    if len(queries) > _QUERIES_MAX:
        raise invalid(f"The parameter MetricDataQueries must have at most {_QUERIES_MAX} members, not {len(queries)}.")
    seen: set[str] = set()
    wanted: list[_Wanted] = []
    for number, query in enumerate(queries, start=1):
        at = f"metricDataQueries.{number}.member"
        if query["Id"] in seen:
            raise invalid(f"Value {query['Id']!r} at '{at}.id' is not allowed: another query has it.")
        seen.add(query["Id"])
        stat = query.get("MetricStat")
        if stat is None:
            raise combination(f"'{at}' asks for nothing: it needs a MetricStat with Metric, Period and Stat.")
        window = Window.of(request["StartTime"], request["EndTime"], period_s=stat["Period"])
        if query.get("ReturnData", True):
            wanted.append(
                _Wanted(
                    id=query["Id"],
                    label=query.get("Label") or stat["Metric"].get("MetricName", ""),
                    metric=stat["Metric"],
                    unit=stat.get("Unit"),
                    window=window,
                    statistic=statistic(stat["Stat"], f"{at}.metricStat.stat"),
                )
            )
    return wanted


def _result(wanted: _Wanted, points: Mapping[str, Iterable[Point]], *, descending: bool) -> _Result:
    groups = wanted.window.grouped(chain.from_iterable(points.values()))
    if descending:
        groups.reverse()
    return _Result(wanted, [when(at_ms) for at_ms, _ in groups], [wanted.statistic(values) for _, values in groups])


def _begin(token: str | None) -> int:
    if token is None:
        return 0
    if not _TOKEN.fullmatch(token):
        raise AwsError(
            f"{token[:64]!r} at 'nextToken' is not a token of GetMetricData; pass the NextToken of the last page",
            code="InvalidNextToken",
        )
    return int(token)


def _page(results: Sequence[_Result], *, begin: int, limit: int) -> dict[str, Any]:
    """Return up to ``limit`` points from the point with number ``begin`` on, counted over all results."""
    shown: list[dict[str, Any]] = []
    first = 0  # number of the current result's first point
    end = begin + limit
    for result in results:
        count = len(result.values)
        low, high = max(begin - first, 0), min(end - first, count)
        if low < high or (count == 0 and begin == 0):
            shown.append(
                {
                    "Id": result.wanted.id,
                    "Label": result.wanted.label,
                    "Timestamps": result.times[low:high],
                    "Values": result.values[low:high],
                    "StatusCode": "Complete" if high == count else "PartialData",
                }
            )
        first += count
    reply: dict[str, Any] = {"MetricDataResults": shown, "Messages": []}
    return reply | ({"NextToken": str(end)} if end < first else {})
