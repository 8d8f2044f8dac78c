"""Replace Ray's placement by one without machines, in a service whose PYTHONPATH has this directory.

Assignments are written to the directory that `ray_address` names. A client that simulates agents removes them. On
SIGUSR2 the service runs a full collection of Python's garbage, and writes its cost to ``collection.json`` there.
"""

import gc
import json
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any


class RayPlacement:
    """An `AgentPlacement` that starts no instances."""

    def __init__(self, address: str, *, shares: Any) -> None:
        del shares
        self._directory = Path(address)
        measured.append(self._directory / "collection.json")

    def capacity(self) -> Any:
        from tidemill.executors.base import Capacity

        return Capacity(instances=1_000_000, cpus=1_000_000, gpus=0)

    def watch(self, ended: Any) -> None:
        pass

    def reserve(self, job_id: str, attempt: int, instance_types: Any, *, title: str) -> tuple[str, ...]:
        del job_id, attempt, title
        return ("127.0.0.1",) * len(instance_types)

    def start(self, assignments: Any) -> None:
        for ref, assignment in assignments.items():
            partial = self._directory / f"{ref.job_id}-{ref.attempt}.partial"
            partial.write_bytes(assignment)
            partial.rename(partial.with_suffix(""))

    def waits(self, job_id: str) -> bool:
        del job_id
        return False

    def kill(self, ref: Any) -> bool:
        del ref
        return True

    def release(self, job_id: str) -> None:
        del job_id

    def close(self) -> None:
        pass


measured: list[Path] = []


def collect(number: int, frame: Any) -> None:
    """Run a full collection, and write how long it took."""
    del number, frame
    from tidemill.server import garbage

    objects, freed = gc.get_freeze_count(), gc.get_stats()[2]["collected"]
    begun = time.perf_counter()
    garbage._collect_all()
    seconds = time.perf_counter() - begun
    figures = {"seconds": seconds, "objects": objects, "freed": gc.get_stats()[2]["collected"] - freed}
    partial = measured[-1].with_suffix(".partial")
    partial.write_text(json.dumps(figures))
    partial.rename(measured[-1])


signal.signal(signal.SIGUSR2, collect)
module = types.ModuleType("tidemill.executors.ray.placement")
module.RayPlacement = RayPlacement  # type: ignore[attr-defined]
sys.modules[module.__name__] = module
