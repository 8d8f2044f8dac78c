"""Numbers of CPUs, GPUs and Neuron cores of the instance."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

QUERY_TIMEOUT_S = 30


@dataclass(frozen=True)
class Devices:
    """Numbers of processors that the job may use."""

    num_cpus: int
    num_gpus: int
    num_neurons: int

    @classmethod
    def present(cls, variables: Mapping[str, str]) -> Devices:
        """Count CPUs of the affinity mask, GPUs and Neuron cores.

        Args:
            variables: The container's environment. CUDA_VISIBLE_DEVICES hides GPUs of those that nvidia-smi lists;
                without nvidia-smi, the GPUs are those that it names.
        """
        return cls(len(os.sched_getaffinity(0)), _count_gpus(variables.get("CUDA_VISIBLE_DEVICES")), _count_neurons())


def _count_gpus(visible: str | None) -> int:
    listed = sum(line.startswith("GPU ") for line in _output_of("nvidia-smi", "--list-gpus").splitlines())
    if visible is None:
        return listed
    shown: list[str] = []
    for name in (name.strip() for name in visible.split(",")):
        # CUDA ignores a number of no GPU, such as -1, and what follows it.
        if name == "-1" or (listed and name.isdigit() and int(name) >= listed):
            break
        shown += [name] if name else []
    return min(len(shown), listed) if listed else len(shown)


def _count_neurons() -> int:
    try:
        devices = json.loads(_output_of("neuron-ls", "-j") or "[]")
        return sum(int(device.get("nc_count", 0)) for device in devices)
    except (AttributeError, TypeError, ValueError):  # what the tool wrote is no list of devices
        return 0


def _output_of(*command: str) -> str:
    """Return the standard output of a tool; empty if the tool or its device is missing."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""
