"""DescribeMachine: the processors, memory, GPUs and disks of the service's machine, and its queue of jobs."""

import asyncio
import os
import platform
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.control.slots import Share, Slots
from tidemill.core.names import sagemaker_arn
from tidemill.executors.base import Capacity
from tidemill.executors.gpus import Gpu, find_gpus
from tidemill.services.operations import Operations
from tidemill.wire.exchange import Context

__all__ = ["MachineFacts", "MachineOperations"]

_DESCRIBED_BY = {
    "training-job": "sagemaker:DescribeTrainingJob",
    "processing-job": "sagemaker:DescribeProcessingJob",
    "transform-job": "sagemaker:DescribeTransformJob",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """What DescribeMachine is about.

    Attributes:
        slots: The instances that run, and those that wait.
        capacity: Returns how many can run.
        disks: Directories whose file systems are shown, by what they are for, e.g. ``state``.
        service: Members about the service that do not change while it runs.
        versions: Versions by name, e.g. of Python.
    """

    slots: Slots
    capacity: Callable[[], Capacity]
    disks: Mapping[str, Path]
    service: Mapping[str, Any]
    versions: Mapping[str, str]


class MachineOperations(Operations):
    """Describes the machine."""

    def __init__(self, machine: MachineFacts) -> None:
        self._machine = machine
        self._gpus: tuple[Gpu, ...] | None = None

    async def describe_machine(self, request: dict[str, Any], context: Context) -> Mapping[str, Any]:
        """DescribeMachine. Callers see how many instances the jobs of others have, and not which jobs they are."""
        machine, slots = self._machine, self._machine.slots
        if self._gpus is None:  # the same until the machine starts again
            self._gpus = await asyncio.to_thread(find_gpus)
        capacity = machine.capacity()
        return {
            **await asyncio.to_thread(_hardware, machine.disks),
            "Gpus": [
                {"Index": gpu.index, "Uuid": gpu.uuid, "Name": gpu.name, "Memory": gpu.memory, "Driver": gpu.driver}
                for gpu in self._gpus
            ],
            "Capacity": {
                "Instances": capacity.instances,
                "FreeInstances": slots.free,
                "Gpus": capacity.gpus,
                "SharesGpus": capacity.shares_gpus,
            },
            "Running": [_shown(share, context) for share in slots.shares],
            "Waiting": [_shown(share, context) for share in slots.queue],
            "Service": dict(machine.service),
            "Versions": [{"Name": name, "Version": version} for name, version in machine.versions.items()],
        }


def _hardware(disks: Mapping[str, Path]) -> dict[str, Any]:
    import psutil  # takes 15 ms, which the start of the service does not need

    memory = psutil.virtual_memory()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "HostName": socket.gethostname(),
        "System": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Cpus": {"Count": usable, "LoadAverage": [round(load, 2) for load in os.getloadavg()]},
        "Memory": {"TotalBytes": memory.total, "AvailableBytes": memory.available},
        "Disks": [_disk(name, path) for name, path in disks.items()],
    }


def _disk(name: str, path: Path) -> dict[str, Any]:
    figures = os.statvfs(next(place for place in (path, *path.parents) if place.exists()))
    return {
        "Name": name,
        "Path": str(path),
        "TotalBytes": figures.f_blocks * figures.f_frsize,
        "FreeBytes": figures.f_bavail * figures.f_frsize,
    }


def _shown(share: Share, context: Context) -> dict[str, Any]:
    kind, name = share.holder.kind, share.holder.name
    seen = context.permits(_DESCRIBED_BY[kind], sagemaker_arn(kind, name, region=context.region))
    return {
        "Kind": kind.removesuffix("-job"),
        **({"Name": name} if seen else {}),
        "Instances": share.count,
        "Gpus": share.gpus,
    }
