"""The curves of a training job's metrics, point by point: CloudWatch has at most one value a second."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.control.training.metrics import Points, TrainingMetrics
from tidemill.core.thinning import thinned
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context

_POINTS = 2000
"""Default of MaxPoints: more than a chart is wide."""
_POINTS_MAX = 100_000
"""Most points of all series in an answer."""


class MetricPointOperations(Operations):
    """Reads the curves.

    Args:
        metrics: The metrics in the logs of training jobs.
    """

    def __init__(self, metrics: TrainingMetrics) -> None:
        self._metrics = metrics

    async def get_metric_points(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the points of each metric and instance, of a long curve those that a drawing needs."""
        series = await self._metrics.series(request["TrainingJobName"])
        most = min(request.get("MaxPoints", _POINTS), _POINTS_MAX // max(len(series), 1))
        return {"Series": await asyncio.to_thread(_shown, series, most)}


def _shown(series: Sequence[tuple[str, int, Points]], most: int) -> list[dict[str, Any]]:
    return [_one(name, instance, points, most) for name, instance, points in series]


def _one(name: str, instance: int, points: Points, most: int) -> dict[str, Any]:
    values = points.values[:]  # a copy: another request may read on meanwhile
    kept = thinned(values, most=most)
    return {
        "MetricName": name,
        "Instance": instance,
        "Steps": [index + 1 for index in kept],
        "Times": [points.times_ms[index] / 1000 for index in kept],
        "Values": [values[index] for index in kept],
    }
