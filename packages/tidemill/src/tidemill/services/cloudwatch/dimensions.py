"""Which metric a request names: SageMaker's namespace of training jobs, and its one dimension."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.control.training_metrics import Points, TrainingMetrics

__all__ = ["DIMENSION", "NAMESPACE", "points_of"]

NAMESPACE = "/aws/sagemaker/TrainingJobs"
DIMENSION = "TrainingJobName"

_UNIT = "None"
"""The unit of every metric: a log says none."""


async def points_of(metrics: TrainingMetrics, request: Mapping[str, Any], *, unit: str | None) -> Sequence[Points]:
    """Return the points of the metric that a request names; none if there is no such metric, as CloudWatch does.

    Args:
        metrics: Has them.
        request: Has ``Namespace``, ``MetricName`` and ``Dimensions``.
        unit: Points of another unit are left out; None takes them all.
    """
    dimensions = [(each["Name"], each["Value"]) for each in request.get("Dimensions", ())]
    named = request.get("Namespace") == NAMESPACE and [name for name, _ in dimensions] == [DIMENSION]
    if not named or unit not in (None, _UNIT):
        return ()
    return await metrics.points(dimensions[0][1], request.get("MetricName", ""))
