"""Determines the metric in a request: SageMaker's namespace of training jobs, and its one dimension."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.control.training.metrics import Points, TrainingMetrics

__all__ = ["DIMENSION", "NAMESPACE", "points_of"]

NAMESPACE = "/aws/sagemaker/TrainingJobs"
DIMENSION = "TrainingJobName"

_UNIT = "None"
"""The unit of every metric, since a log contains no units."""


async def points_of(metrics: TrainingMetrics, request: Mapping[str, Any], *, unit: str | None) -> Sequence[Points]:
    """Return the points of the metric in a request; none if there is no such metric, as CloudWatch does.

    Args:
        metrics: The metrics of training jobs.
        request: Contains ``Namespace``, ``MetricName`` and ``Dimensions``.
        unit: Return points of this unit only; None returns all.
    """
    dimensions = [(each["Name"], each["Value"]) for each in request.get("Dimensions", ())]
    named = request.get("Namespace") == NAMESPACE and [name for name, _ in dimensions] == [DIMENSION]
    if not named or unit not in (None, _UNIT):
        return ()
    return await metrics.points(dimensions[0][1], request.get("MetricName", ""))
