"""Replace Ray's placement by one without machines, in a service whose PYTHONPATH has this directory.

Assignments are written to the directory that `ray_address` names. A client that simulates agents removes them.
"""

import sys
import types
from pathlib import Path
from typing import Any


class RayPlacement:
    """A `Placement` that starts no instances."""

    def __init__(self, address: str) -> None:
        self._directory = Path(address)

    def capacity(self) -> Any:
        from tidemill.executors.base import Capacity

        return Capacity(instances=1_000_000, cpus=1_000_000, gpus=0)

    def reserve(self, job_id: str, attempt: int, shares: Any) -> tuple[str, ...]:
        del job_id, attempt
        return ("127.0.0.1",) * len(shares)

    def start(self, ref: Any, assignment: bytes) -> None:
        partial = self._directory / f"{ref.job_id}-{ref.attempt}.partial"
        partial.write_bytes(assignment)
        partial.rename(partial.with_suffix(""))

    def kill(self, ref: Any) -> bool:
        del ref
        return True

    def release(self, job_id: str) -> None:
        del job_id

    def close(self) -> None:
        pass


module = types.ModuleType("tidemill.executors.ray.placement")
module.RayPlacement = RayPlacement  # type: ignore[attr-defined]
sys.modules[module.__name__] = module
