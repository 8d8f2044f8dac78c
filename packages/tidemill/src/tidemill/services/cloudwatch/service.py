"""The operations of CloudWatch that read metrics, over the logs of training jobs."""

import asyncio
from collections.abc import Mapping
from itertools import chain
from typing import Any

from tidemill.control.training.metrics import JobMetric, TrainingMetrics
from tidemill.core.clock import Clock
from tidemill.errors import AwsError
from tidemill.services.cloudwatch.data import metric_data
from tidemill.services.cloudwatch.dimensions import DIMENSION, NAMESPACE, points_of
from tidemill.services.cloudwatch.statistics import Window, combination, statistic
from tidemill.services.times import when
from tidemill.wire.exchange import Context, Handler

__all__ = ["CloudWatchService"]

_DATAPOINTS_MAX = 1440
_LISTED_MAX = 500
_JOBS_A_PAGE = 12
"""Number of jobs per page: a job has at most 40 metrics, so the metrics of this many fit into a reply."""
_RECENT_MS = 3 * 3600 * 1000


class CloudWatchService:
    """Amazon CloudWatch, for reading the metrics of training jobs.

    Args:
        metrics: The metrics of training jobs.
        clock: Source of time.
    """

    def __init__(self, metrics: TrainingMetrics, *, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "GetMetricData": self.data,
            "GetMetricStatistics": self.statistics,
            "ListMetrics": self.list,
        }

    async def data(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        return await metric_data(self._metrics, request)

    async def statistics(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        simple = {name: statistic(name, "statistics") for name in request.get("Statistics", ())}
        extended = {name: statistic(name, "extendedStatistics") for name in request.get("ExtendedStatistics", ())}
        if not simple and not extended:
            raise combination("At least one of the parameters Statistics and ExtendedStatistics must be specified.")
        window = Window.of(request["StartTime"], request["EndTime"], period_s=request["Period"])
        if window.periods > _DATAPOINTS_MAX:
            raise combination(
                f"You have requested up to {window.periods:,} datapoints, which exceeds the limit of"
                f" {_DATAPOINTS_MAX:,}. You may reduce the datapoints requested by increasing Period, or decreasing the"
                " time range."
            )
        points = await points_of(self._metrics, request, unit=request.get("Unit"))
        groups = await asyncio.to_thread(window.grouped, chain.from_iterable(points))
        datapoints: list[dict[str, Any]] = []
        for at_ms, values in groups:
            shown: dict[str, Any] = {name: compute(values) for name, compute in simple.items()}
            if extended:
                shown["ExtendedStatistics"] = {name: compute(values) for name, compute in extended.items()}
            datapoints.append({"Timestamp": when(at_ms), **shown, "Unit": "None"})
        return {"Label": request["MetricName"], "Datapoints": datapoints}

    async def list(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        filters = {each["Name"]: each.get("Value") for each in request.get("Dimensions", ())}
        if request.get("Namespace", NAMESPACE) != NAMESPACE or filters.keys() - {DIMENSION}:
            return {"Metrics": []}
        since_ms = self._clock.now_ms() - _RECENT_MS if "RecentlyActive" in request else None
        name = request.get("MetricName")
        job = filters.get(DIMENSION)
        if job is not None and since_ms is None:
            return {"Metrics": [_wire(each) for each in await self._metrics.names(job) if name in (None, each.name)]}
        found: list[JobMetric] = []
        try:
            pages = self._metrics.pages(jobs=_JOBS_A_PAGE, after=request.get("NextToken"), ended_after_ms=since_ms)
            async for page, token in pages:
                found += [each for each in page if name in (None, each.name) and job in (None, each.job)]
                if token is None or len(found) > _LISTED_MAX - _JOBS_A_PAGE * 40:
                    break
        except ValueError as error:
            raise AwsError(f"The NextToken is not valid: {error}", code="InvalidParameterValue") from error
        return {"Metrics": [_wire(each) for each in found]} | ({"NextToken": token} if token else {})


def _wire(metric: JobMetric) -> dict[str, Any]:
    dimensions = [{"Name": DIMENSION, "Value": metric.job}]
    return {"Namespace": NAMESPACE, "MetricName": metric.name, "Dimensions": dimensions}
