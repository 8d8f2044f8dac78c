"""The metrics of instances in SageMaker's namespaces: CPUUtilization, MemoryUtilization and so on.

Names, dimensions and ranges are those of SageMaker's guide on metrics of jobs and endpoint instances: a processor or a
GPU that is busy all the time counts 100, so that two of them can reach 200.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tidemill.control.custom_metrics import CustomMetric
from tidemill.control.instance_samples import InstanceSamples, SampledHost
from tidemill.control.resources import ENDPOINT, PROCESSING_JOB, TRAINING_JOB, TRANSFORM_JOB
from tidemill.instance.samples import Sample, SampledInstance, SampleSeries
from tidemill.services.cloudwatch.statistics import Point, Window

__all__ = ["ResourceMetrics"]

_UNIT = "Percent"
_HOST = "Host"
_VARIANT = ("EndpointName", "VariantName")
_NAMESPACES = {
    "/aws/sagemaker/TrainingJobs": TRAINING_JOB,
    "/aws/sagemaker/ProcessingJobs": PROCESSING_JOB,
    "/aws/sagemaker/TransformJobs": TRANSFORM_JOB,
    "/aws/sagemaker/Endpoints": ENDPOINT,
}
_OWNERS_A_PAGE = 20


def _gpu_memory(sample: Sample, instance: SampledInstance) -> float:
    pairs = zip(sample.gpus, instance.gpu_memory_bytes, strict=False)
    return 100 * sum(gpu.memory_bytes / max(1, whole) for gpu, whole in pairs)


_METRICS: Mapping[str, Callable[[Sample, SampledInstance], float]] = {
    "CPUUtilization": lambda sample, instance: 100 * sample.cpu,
    "MemoryUtilization": lambda sample, instance: 100 * sample.memory_bytes / max(1, instance.memory_bytes),
    "DiskUtilization": lambda sample, instance: 100 * sample.disk_bytes / max(1, instance.disk_bytes),
    "GPUUtilization": lambda sample, instance: 100 * sum(gpu.busy for gpu in sample.gpus),
    "GPUMemoryUtilization": _gpu_memory,
}


class ResourceMetrics:
    """Reads samples of instances as metrics."""

    def __init__(self, samples: InstanceSamples) -> None:
        self._samples = samples

    async def points(self, metric: CustomMetric, window: Window) -> dict[str, list[Point]]:
        """Return the points of a metric by unit; none if it is no metric of instances.

        Args:
            metric: Namespace, name and dimensions.
            window: Points outside are not returned.
        """
        value = _METRICS.get(metric.name)
        hosts = self._hosts(metric)
        if value is None or not hosts:
            return {}

        def read() -> list[Point]:
            return [point for host in hosts for point in _points(host.read(), metric.name, window)]

        points = await asyncio.to_thread(read)
        return {_UNIT: points} if points else {}

    async def page(
        self, request: Mapping[str, Any], *, after: str | None, since_ms: int | None
    ) -> tuple[list[CustomMetric], str | None]:
        """Return metrics that have points, and the token of the next page; each page has those of one kind.

        Args:
            request: Members of ListMetrics, of which the namespace limits the search.
            after: Token of an earlier page.
            since_ms: Only instances with a sample since this time, in milliseconds since the epoch. Default: all.

        Raises:
            ValueError: ``after`` is not a token of this method.
        """
        wanted = [each for each in _NAMESPACES if request.get("Namespace") in (None, each)]
        namespace, _, token = (after or "").partition(":")
        begin = namespace or next(iter(wanted), "")
        if begin not in wanted:
            if after is None:
                return [], None
            raise ValueError(f"{after[:64]!r} is not a token of this request")
        hosts, next_token = await self._samples.page(_NAMESPACES[begin], jobs=_OWNERS_A_PAGE, after=token or None)
        found = await asyncio.to_thread(_listed, begin, hosts, since_ms)
        if next_token is not None:
            return found, f"{begin}:{next_token}"
        following = wanted[wanted.index(begin) + 1 :]
        return found, f"{following[0]}:" if following else None

    def _hosts(self, metric: CustomMetric) -> list[SampledHost]:
        """Return the instances that the dimensions of a metric name."""
        kind, values = _NAMESPACES.get(metric.namespace), dict(metric.dimensions)
        if kind is None or metric.name not in _METRICS:
            return []
        if kind == ENDPOINT:
            if tuple(sorted(values)) != _VARIANT:
                return []
            hosts = self._samples.hosts(kind, values["EndpointName"])
            return [host for host in hosts if host.variant == values["VariantName"]]
        if list(values) != [_HOST]:
            return []
        owner, _, name = values[_HOST].rpartition("/")
        return [host for host in self._samples.hosts(kind, owner) if host.host == name]


def _points(series: SampleSeries, name: str, window: Window) -> list[Point]:
    instance = series.instance
    if instance is None:
        return []
    value = _METRICS[name]
    return [
        (sample.at_ms, value(sample, instance))
        for sample in series.samples
        if window.start_ms <= sample.at_ms < window.end_ms and (sample.gpus or not name.startswith("GPU"))
    ]


def _listed(namespace: str, hosts: list[SampledHost], since_ms: int | None) -> list[CustomMetric]:
    """Return the metrics of instances, each once: the instances of a variant have the same."""
    found: dict[CustomMetric, None] = {}
    for host in hosts:
        if since_ms is not None and host.sampled_ms() < since_ms:
            continue
        instance = host.described()
        has_gpus = instance is not None and bool(instance.gpus)
        dimensions = ((_HOST, f"{host.owner}/{host.host}"),)
        if host.kind == ENDPOINT:
            dimensions = tuple(zip(_VARIANT, (host.owner, host.variant), strict=True))
        for name in _METRICS:
            if has_gpus or not name.startswith("GPU"):
                found[CustomMetric(namespace, name, dimensions)] = None
    return list(found)
