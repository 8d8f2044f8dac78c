"""GetInstanceSamples: what the instances of a job used over time; ListRunningInstances: what all use now."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from tidemill.control.instance_samples import InstanceSamples, SampledHost
from tidemill.control.resources import ENDPOINT, TITLES
from tidemill.core.names import sagemaker_arn
from tidemill.instance.samples import Sample, SampledInstance, SampleSeries, reduced
from tidemill.services.operations import Operations
from tidemill.store.records.base import Record
from tidemill.wire.exchange import Context

_SAMPLES = 500
_SAMPLES_MAX = 50_000
"""Most samples of all instances in an answer: a job can have 10,000 instances."""


class SampleOperations(Operations):
    """Shows samples."""

    def __init__(self, samples: InstanceSamples) -> None:
        self._samples = samples

    async def get_instance_samples(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the samples of each instance; no instances if there is no such job or endpoint."""
        hosts = self._samples.hosts(request["Kind"], request["Name"])
        after_ms = request.get("AfterMs", 0)
        most = max(1, min(request.get("MaxSamples", _SAMPLES), _SAMPLES_MAX // max(1, len(hosts))))

        def read() -> list[dict[str, Any]]:
            return [
                _instance(host, series.instance) | _columns(reduced(series.after(after_ms).samples, most=most))
                for host in hosts
                if (series := host.read()).instance
            ]

        return {"Instances": await asyncio.to_thread(read)}

    async def list_running_instances(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """Return the jobs that have not ended and the endpoints, which the caller may describe, with last samples."""
        found = []
        async for record, hosts in self._samples.running():
            action = f"sagemaker:Describe{TITLES[record.kind]}"
            if context.permits(action, sagemaker_arn(record.kind, record.name, region=context.region)):
                found.append((record, hosts))

        def read() -> list[dict[str, Any]]:
            return [_owner(record) | {"Instances": [_latest(host) for host in hosts]} for record, hosts in found]

        return {"Running": await asyncio.to_thread(read)}


def _owner(record: Record) -> dict[str, Any]:
    transitions = record.document.get("transitions") or ()
    return {
        "Kind": record.kind,
        "Name": record.name,
        "Status": record.status,
        "SecondaryStatus": str(transitions[-1]["status"]) if transitions else record.status,
        "CreatedMs": record.created_ms,
    }


def _latest(host: SampledHost) -> dict[str, Any]:
    series: SampleSeries = host.latest()
    return _instance(host, series.instance) | _columns(series.samples)


def _instance(host: SampledHost, instance: SampledInstance | None) -> dict[str, Any]:
    members: dict[str, Any] = {"Host": host.host}
    if host.kind == ENDPOINT:
        members["Variant"] = host.variant
    if instance is None:
        return members
    return members | {
        "Cpus": instance.cpus,
        "MemoryBytes": instance.memory_bytes,
        "DiskBytes": instance.disk_bytes,
        "Network": instance.network,
        "Gpus": [
            {"Name": name, "MemoryBytes": size}
            for name, size in zip(instance.gpus, instance.gpu_memory_bytes, strict=False)
        ],
    }


def _columns(samples: Iterable[Sample]) -> dict[str, Any]:
    """Return samples as one list per measure, which is the shortest form."""
    kept = list(samples)
    gpus = max((len(each.gpus) for each in kept), default=0)
    return {
        "TimesMs": [each.at_ms for each in kept],
        "SpansMs": [each.span_ms for each in kept],
        "Cpu": [each.cpu for each in kept],
        "Memory": [each.memory_bytes for each in kept],
        "Disk": [each.disk_bytes for each in kept],
        "DiskRead": [each.read_bytes_s for each in kept],
        "DiskWritten": [each.written_bytes_s for each in kept],
        "NetworkReceived": [each.received_bytes_s for each in kept],
        "NetworkSent": [each.sent_bytes_s for each in kept],
        "GpuSamples": [
            {
                "Busy": [each.gpus[number].busy if number < len(each.gpus) else 0.0 for each in kept],
                "Memory": [each.gpus[number].memory_bytes if number < len(each.gpus) else 0 for each in kept],
            }
            for number in range(gpus)
        ],
    }
