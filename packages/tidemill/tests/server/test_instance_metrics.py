"""Metrics of what instances use."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as parsed

from tidemill.control.instance_samples import SampledHost
from tidemill.core.exposition import exposition
from tidemill.instance.samples import SAMPLES_FILE, GpuSample, Sample, SampledInstance, SampleSeries
from tidemill.server import instance_metrics
from tidemill.server.instance_metrics import instance_families

NOW_MS = 1_700_000_000_000
INSTANCE = SampledInstance(cpus=4, memory_bytes=8_000, disk_bytes=9_000, gpus=("A", "B"), gpu_memory_bytes=(70, 80))


def host(root: Path, owner: str, name: str, *, age_ms: int) -> SampledHost:
    directory = root / owner / name
    directory.mkdir(parents=True)
    gpus = (GpuSample(0.5, 60), GpuSample(0.25, 50))
    sample = Sample(NOW_MS - age_ms, 10_000, 2.5, 4_000, 5_000, 1.0, 2.0, 3.0, 4.0, gpus)
    (directory / SAMPLES_FILE).write_bytes(SampleSeries(INSTANCE, (sample,)).to_lines())
    return SampledHost(kind="training-job", owner=owner, host=name, directory=directory)


class Samples:
    def __init__(self, *found: tuple[SampledHost, ...]) -> None:
        self.found = found

    async def running(self) -> AsyncIterator[tuple[Any, tuple[SampledHost, ...]]]:
        for hosts in self.found:
            yield SimpleNamespace(), hosts


def read(samples: Any) -> dict[str, dict[tuple[str, ...], float]]:
    families = asyncio.run(instance_families(samples, now_ms=NOW_MS))
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in parsed(exposition(families).decode())
    }


def test_the_last_samples_of_what_runs_are_shown(tmp_path: Path) -> None:
    unsampled = SampledHost(kind="endpoint", owner="e", host="v/i-1", variant="v", directory=tmp_path / "none")
    fresh, old = host(tmp_path, "a", "algo-1", age_ms=9_000), host(tmp_path, "b", "algo-1", age_ms=90_000)
    found = read(Samples((fresh,), (old,), (unsampled,)))
    key = ("training-job", "a", "algo-1")
    assert found["tidemill_instance_cpus_used"] == {key: 2.5}
    assert found["tidemill_instance_cpus"] == {key: 4}
    assert found["tidemill_instance_memory_bytes"] == {key: 4_000}
    assert found["tidemill_instance_memory_max_bytes"] == {key: 8_000}
    assert found["tidemill_instance_sent_bytes_per_second"] == {key: 4}
    assert found["tidemill_instance_gpu_busy_ratio"] == {(*key, "0"): 0.5, (*key, "1"): 0.25}
    assert found["tidemill_instance_gpu_memory_bytes"] == {(*key, "0"): 60, (*key, "1"): 50}


def test_the_number_of_instances_is_limited(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(instance_metrics, "INSTANCES_MAX", 3)
    hosts = [tuple(host(tmp_path, f"j{job}", f"algo-{n}", age_ms=0) for n in (1, 2)) for job in range(3)]
    assert len(read(Samples(*hosts))["tidemill_instance_cpus"]) == 3
