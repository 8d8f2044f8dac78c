"""Metrics of what the instances of running jobs and of endpoints use, by their last samples."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from tidemill.control.instance_samples import InstanceSamples, SampledHost
from tidemill.core.exposition import Family
from tidemill.instance.samples import SAMPLED_EVERY_MS, Sample, SampleSeries

INSTANCES_MAX = 1_000
"""Instances that are shown: their names are users', so that their number needs a limit."""
_STALE_MS = 6 * SAMPLED_EVERY_MS

_VALUES: Mapping[str, tuple[str, Callable[[Sample], float]]] = {
    "cpus_used": ("Processors that an instance kept busy.", lambda sample: sample.cpu),
    "memory_bytes": ("Memory of an instance's processes.", lambda sample: sample.memory_bytes),
    "disk_bytes": ("Size of an instance's files.", lambda sample: sample.disk_bytes),
    "read_bytes_per_second": ("What an instance reads from disks.", lambda sample: sample.read_bytes_s),
    "written_bytes_per_second": ("What an instance writes to disks.", lambda sample: sample.written_bytes_s),
    "received_bytes_per_second": ("What an instance receives.", lambda sample: sample.received_bytes_s),
    "sent_bytes_per_second": ("What an instance sends.", lambda sample: sample.sent_bytes_s),
}
_Shown = list[tuple[Mapping[str, str], SampleSeries]]


async def instance_families(samples: InstanceSamples, *, now_ms: int) -> list[Family]:
    """Return the metrics of instances that run now.

    Args:
        now_ms: Milliseconds since the epoch; older samples than those of a minute are those of ended instances.
    """
    hosts: list[SampledHost] = []
    async for _, found in samples.running():
        hosts += found[: INSTANCES_MAX - len(hosts)]
        if len(hosts) == INSTANCES_MAX:
            break
    shown = await asyncio.to_thread(_shown, hosts, now_ms)
    return list(_families(shown))


def _shown(hosts: list[SampledHost], now_ms: int) -> _Shown:
    series = [({"kind": each.kind, "name": each.owner, "host": each.host}, each.latest()) for each in hosts]
    return [
        (labels, each)
        for labels, each in series
        if each.instance is not None and each.samples and each.samples[-1].at_ms > now_ms - _STALE_MS
    ]


def _families(shown: _Shown) -> Iterator[Family]:
    for name, (text, value) in _VALUES.items():
        values = [(labels, value(series.samples[-1])) for labels, series in shown]
        yield Family(f"tidemill_instance_{name}", "gauge", text, values)
    limits = [(labels, series.instance) for labels, series in shown if series.instance is not None]
    gpus = [
        ({**labels, "gpu": str(number)}, gpu)
        for labels, series in shown
        for number, gpu in enumerate(series.samples[-1].gpus)
    ]
    for name, text, values in (
        ("cpus", "Processors that an instance may use.", [(labels, each.cpus) for labels, each in limits]),
        (
            "memory_max_bytes",
            "Memory that an instance may use.",
            [(labels, each.memory_bytes) for labels, each in limits],
        ),
        (
            "gpu_busy_ratio",
            "Part of the time in which a GPU of an instance computed.",
            [(labels, gpu.busy) for labels, gpu in gpus],
        ),
        (
            "gpu_memory_bytes",
            "Memory in use on a GPU of an instance.",
            [(labels, gpu.memory_bytes) for labels, gpu in gpus],
        ),
    ):
        yield Family(f"tidemill_instance_{name}", "gauge", text, values)
