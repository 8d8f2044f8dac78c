"""The metrics of requests to endpoints, in CloudWatch's namespace AWS/SageMaker.

Names, units and meanings are from SageMaker's guide on metrics for monitoring: an error metric has the sample 1 for a
request that failed and 0 for another one, so that its average is the share of failures.
"""

from collections.abc import Callable, Iterator, Mapping

from tidemill.control.custom_metrics import CustomMetric
from tidemill.control.endpoints.call_history import CallHistory, CallPeriod
from tidemill.services.cloudwatch.statistics import CountedPoint, Point, Window

NAMESPACE = "AWS/SageMaker"

_DIMENSIONS = ("EndpointName", "VariantName")
_Samples = Iterator[tuple[float, int]]


def _invocations(period: CallPeriod) -> _Samples:
    yield 1.0, period.calls


def _errors(of: Callable[[CallPeriod], int]) -> Callable[[CallPeriod], _Samples]:
    def samples(period: CallPeriod) -> _Samples:
        failed = of(period)
        yield 1.0, failed
        yield 0.0, period.calls - failed

    return samples


def _latencies(period: CallPeriod) -> _Samples:
    for latency_s, count in period.latencies_s():
        yield latency_s * 1e6, count


_METRICS: Mapping[str, tuple[str, Callable[[CallPeriod], _Samples]]] = {
    "Invocations": ("None", _invocations),
    "Invocation4XXErrors": ("None", _errors(lambda period: period.client_errors)),
    "Invocation5XXErrors": ("None", _errors(lambda period: period.server_errors)),
    "InvocationModelErrors": (
        "None",
        _errors(lambda period: period.client_errors + period.server_errors + period.unanswered),
    ),
    "ModelLatency": ("Microseconds", _latencies),
}
"""Unit and samples of a period, by name."""


class CallMetrics:
    """Reads the history of requests as metrics."""

    def __init__(self, history: CallHistory) -> None:
        self._history = history

    def points(self, metric: CustomMetric, window: Window) -> dict[str, list[Point]]:
        """Return the points of a metric by unit; none if it is no metric of requests.

        Args:
            metric: Namespace, name and dimensions.
            window: Points outside need not be returned.
        """
        values = dict(metric.dimensions)
        if metric.namespace != NAMESPACE or metric.name not in _METRICS or tuple(sorted(values)) != _DIMENSIONS:
            return {}
        unit, samples = _METRICS[metric.name]
        periods = self._history.periods(
            *(values[name] for name in _DIMENSIONS), start_ms=window.start_ms, end_ms=window.end_ms
        )
        points: list[Point] = [
            CountedPoint(period.begin_ms, value, count)
            for period in periods
            for value, count in samples(period)
            if count
        ]
        return {unit: points} if points else {}

    def names(self) -> list[CustomMetric]:
        """Return the metrics of all variants that got requests lately."""
        return [
            CustomMetric(NAMESPACE, name, tuple(zip(_DIMENSIONS, variant, strict=True)))
            for variant in self._history.variants()
            for name in _METRICS
        ]
