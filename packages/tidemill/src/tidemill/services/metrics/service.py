"""Store and read the metrics of trial components (`BatchPutMetrics`, `BatchGetMetrics`)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean, pstdev
from typing import Any

from tidemill.control.experiments.points import MetricPoints
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.core.experiments import MetricPoint
from tidemill.errors import ResourceNotFound
from tidemill.services.operations import Operations
from tidemill.services.times import milliseconds
from tidemill.wire.exchange import Context

_PERIODS_S = {"OneMinute": 60, "FiveMinute": 300, "OneHour": 3600}
_TRAINING_JOB = "SageMakerTrainingJob"
_BY_STEP = "IterationNumber"
_MAX_VALUES = 2880
"""Most values in the result of a query; a longer one is Truncated, and its Start can be moved."""


class MetricsService(Operations):
    """The operations of SageMaker Metrics.

    Args:
        points: The metrics that clients put.
        training: The metrics in the logs of training jobs, which are those of their components, too.
    """

    def __init__(self, points: MetricPoints, training: TrainingMetrics) -> None:
        self._points = points
        self._training = training

    async def batch_put_metrics(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        points = [
            (each["MetricName"], MetricPoint(milliseconds(each["Timestamp"]) or 0, each["Value"], each.get("Step")))
            for each in request["MetricData"]
        ]
        await self._points.add(request["TrialComponentName"], points)
        return {}

    async def batch_get_metrics(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return {"MetricQueryResults": [await self._answer(query) for query in request["MetricQueries"]]}

    async def _answer(self, query: Mapping[str, Any]) -> dict[str, Any]:
        by_step = query["XAxisType"] == _BY_STEP
        if by_step != (query["Period"] == _BY_STEP):
            return _failed(
                f"Period {query['Period']!r} does not fit XAxisType {query['XAxisType']!r}: IterationNumber goes with"
                f" IterationNumber, and Timestamp with {', '.join(_PERIODS_S)}"
            )
        try:
            points = await self._points_of(query["ResourceArn"].rpartition("/")[2], query["MetricName"])
        except ResourceNotFound as error:
            return _failed(error.message)
        buckets = _by_step(points) if by_step else _by_time(points, _PERIODS_S[query["Period"]])
        first, last = query.get("Start"), query.get("End")
        places = sorted(
            place for place in buckets if (first is None or place >= first) and (last is None or place <= last)
        )
        shown = places[:_MAX_VALUES]
        return {
            "Status": "Complete" if len(shown) == len(places) else "Truncated",
            "XAxisValues": shown,
            "MetricValues": [_statistic(query["MetricStat"], buckets[place]) for place in shown],
        }

    async def _points_of(self, name: str, metric: str) -> list[MetricPoint]:
        """Return the values of a metric: those that were put, and behind them those in the log of the component's job.

        Raises:
            ResourceNotFound: There is no such component.
        """
        component = self._points.component(name)
        points = list(self._points.of(component, metric))
        if component.source.get("SourceType") == _TRAINING_JOB:
            job = component.source["SourceArn"].rpartition("/")[2]
            for series in await self._training.points(job, metric):
                points += [MetricPoint(at_ms, value, None) for at_ms, value in series]
        return points


def _failed(message: str) -> dict[str, Any]:
    return {"Status": "ValidationError", "Message": message, "XAxisValues": [], "MetricValues": []}


def _by_step(points: Iterable[MetricPoint]) -> dict[int, list[MetricPoint]]:
    buckets: dict[int, list[MetricPoint]] = defaultdict(list)
    for point in points:
        if point.step is not None:
            buckets[point.step].append(point)
    return buckets


def _by_time(points: Iterable[MetricPoint], period_s: int) -> dict[int, list[MetricPoint]]:
    """Return the points by the beginning of their period, in seconds since the epoch."""
    buckets: dict[int, list[MetricPoint]] = defaultdict(list)
    for point in points:
        buckets[point.at_ms // 1000 // period_s * period_s].append(point)
    return buckets


def _statistic(name: str, points: list[MetricPoint]) -> float:
    values = [point.value for point in points]
    match name:
        case "Min":
            return min(values)
        case "Max":
            return max(values)
        case "Count":
            return len(values)
        case "StdDev":
            return pstdev(values)
        case "Last":
            return max(reversed(points), key=lambda point: point.at_ms).value
        case _:
            return fmean(values)
