"""Determines the metric in a request: SageMaker's metrics of jobs and endpoints, and those that clients have put."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tidemill.control.custom_metrics import CustomMetric, CustomMetrics
from tidemill.control.training.metrics import TrainingMetrics
from tidemill.services.cloudwatch.calls import CallMetrics
from tidemill.services.cloudwatch.resources import ResourceMetrics
from tidemill.services.cloudwatch.statistics import Point, Window

NAMESPACE = "/aws/sagemaker/TrainingJobs"
DIMENSION = "TrainingJobName"

NO_UNIT = "None"
"""The unit of every metric of a training job, since a log contains no units."""


@dataclass(frozen=True, slots=True)
class MetricSources:
    """All metrics.

    Attributes:
        training: Those in the logs of training jobs.
        custom: Those that clients have put.
        calls: Those of requests to endpoints.
        resources: Those of instances.
    """

    training: TrainingMetrics
    custom: CustomMetrics
    calls: CallMetrics
    resources: ResourceMetrics

    async def points(
        self, request: Mapping[str, Any], window: Window, *, unit: str | None
    ) -> dict[str, Iterable[Point]]:
        """Return the points of the metric in a request by unit; none if there is no such metric, as CloudWatch does.

        Args:
            request: Contains ``Namespace``, ``MetricName`` and ``Dimensions``.
            window: Points outside need not be returned.
            unit: Return points of this unit only; None returns all.
        """
        metric = metric_of(request)
        found = {**self.calls.points(metric, window), **await self.resources.points(metric, window)}
        for at_ms, value, its in self.custom.points(metric, start_ms=window.start_ms, end_ms=window.end_ms):
            found.setdefault(its, []).append((at_ms, value))
        by_unit: dict[str, Iterable[Point]] = {**found}
        if metric.namespace == NAMESPACE and [name for name, _ in metric.dimensions] == [DIMENSION]:
            logged = await self.training.points(metric.dimensions[0][1], metric.name)
            if logged:
                by_unit[NO_UNIT] = chain(chain.from_iterable(logged), found.get(NO_UNIT, ()))
        return by_unit if unit is None else {its: points for its, points in by_unit.items() if its == unit}


def metric_of(request: Mapping[str, Any], **members: Any) -> CustomMetric:
    """Return the metric that a request names.

    Args:
        request: Contains ``MetricName``, ``Namespace`` and ``Dimensions``.
        **members: Members that stand elsewhere in the request.
    """
    named = {**request, **members}
    dimensions = sorted((each["Name"], each["Value"]) for each in named.get("Dimensions") or ())
    return CustomMetric(named.get("Namespace", ""), named.get("MetricName", ""), tuple(dimensions))
