"""PutMetricData: checks of the points that clients put."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tidemill.control.custom_metrics import Put
from tidemill.services.cloudwatch.dimensions import NO_UNIT, metric_of
from tidemill.services.cloudwatch.statistics import combination, invalid

_METRICS_MAX = 1000
_VALUES_MAX = 10_000
_PAST_MS = 14 * 24 * 3600 * 1000
_FUTURE_MS = 2 * 3600 * 1000


def puts_of(request: Mapping[str, Any], *, now_ms: int) -> list[Put]:
    """Return the points in a PutMetricData request.

    Raises:
        AwsError: InvalidParameterValue or InvalidParameterCombination; nothing may be stored then.
    """
    namespace = request["Namespace"]
    if namespace.startswith("AWS/"):
        raise invalid(f"The value {namespace!r} for parameter Namespace is invalid: AWS/ is for metrics of AWS.")
    data = request.get("MetricData") or ()
    if len(data) > _METRICS_MAX:
        raise invalid(f"The collection MetricData must have at most {_METRICS_MAX} members, not {len(data)}.")
    return [
        Put(
            metric_of(each, Namespace=namespace),
            _time(each.get("Timestamp"), now_ms, f"MetricData.member.{number}"),
            _values(each, f"MetricData.member.{number}"),
            each.get("Unit", NO_UNIT),
        )
        for number, each in enumerate(data, start=1)
    ]


def _time(value: datetime | None, now_ms: int, at: str) -> int:
    at_ms = now_ms if value is None else int(value.timestamp() * 1000)
    if not now_ms - _PAST_MS <= at_ms <= now_ms + _FUTURE_MS:
        raise invalid(
            f"The parameter {at}.Timestamp must be at most two weeks before and two hours after now; it is"
            f" {value.isoformat() if value else ''}."
        )
    return at_ms


def _values(datum: Mapping[str, Any], at: str) -> tuple[float, ...]:
    """Return every value as often as its count says."""
    given = [name for name in ("Value", "Values") if name in datum]
    if len(given) != 1:
        raise combination(f"{at} needs one of the parameters Value and Values; it has {' and '.join(given) or 'none'}.")
    values = datum["Values"] if "Values" in datum else [datum["Value"]]
    counts = datum.get("Counts") or [1] * len(values)
    if len(counts) != len(values):
        raise combination(f"{at}.Values and {at}.Counts must have the same length: {len(values)}, {len(counts)}.")
    if not all(count > 0 and float(count).is_integer() for count in counts) or sum(counts) > _VALUES_MAX:
        raise invalid(f"{at}.Counts must be whole numbers above 0, together at most {_VALUES_MAX}.")
    if not all(math.isfinite(value) for value in values):
        raise invalid(f"{at} has the value NaN or infinity; values must be finite numbers.")
    return tuple(float(value) for value, count in zip(values, counts, strict=True) for _ in range(int(count)))
