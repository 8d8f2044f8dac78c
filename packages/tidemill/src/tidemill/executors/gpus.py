"""The GPUs of this machine, and which instance has which of them."""

import shutil
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass

from tidemill.errors import LaunchError
from tidemill.instance.spec import InstanceRef

__all__ = ["Gpu", "GpuPool", "find_gpus"]

_TIMEOUT_S = 30
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as nvidia-smi describes it.

    Attributes:
        uuid: ``GPU-...``: what CUDA_VISIBLE_DEVICES names it by, whichever others are visible.
        memory: With its unit, e.g. ``15360 MiB``.
    """

    index: str
    uuid: str
    name: str
    memory: str
    driver: str


def find_gpus(program: str = "nvidia-smi") -> tuple[Gpu, ...]:
    """Return the GPUs of this machine; none if NVIDIA's driver is missing or does not answer.

    Args:
        program: Name or path of ``nvidia-smi``.
    """
    path = shutil.which(program)
    if path is None:
        return ()
    query = (path, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader")
    try:
        asked = subprocess.run(query, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if asked.returncode != 0:
        return ()
    rows = [[field.strip() for field in line.split(",")] for line in asked.stdout.splitlines()]
    return tuple(Gpu(*row) for row in rows if len(row) == len(_FIELDS))


class GpuPool:
    """Deals out GPUs to instances. Methods may be called from several threads.

    Args:
        devices: What CUDA_VISIBLE_DEVICES names them by.
        shared: Whether several instances may have the same GPU; each then gets those with the fewest instances.
    """

    def __init__(self, devices: tuple[str, ...], *, shared: bool = False) -> None:
        self.devices = devices
        self._shared = shared
        self._taken: dict[InstanceRef, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def take(self, ref: InstanceRef, count: int) -> tuple[str, ...]:
        """Return ``count`` GPUs for an instance, which has them until they are given back; the same if it has some.

        Raises:
            LaunchError: Fewer are free.
        """
        with self._lock:
            if ref not in self._taken:
                users = Counter(device for devices in self._taken.values() for device in devices)
                # Sorting keeps the order of equals, so an instance gets neighbors if it can.
                by_use = sorted(self.devices, key=lambda device: users[device])
                free = by_use if self._shared else [device for device in by_use if not users[device]]
                if len(free) < count:
                    raise LaunchError(f"{count} GPUs are needed, and {len(free)} of {len(self.devices)} are free")
                chosen = set(free[:count])
                self._taken[ref] = tuple(device for device in self.devices if device in chosen)
            return self._taken[ref]

    def note(self, ref: InstanceRef, devices: tuple[str, ...]) -> None:
        """Note what an instance of an earlier service has."""
        if devices:
            with self._lock:
                self._taken[ref] = devices

    def give_back(self, ref: InstanceRef) -> None:
        """Free the GPUs of an instance that has ended."""
        with self._lock:
            self._taken.pop(ref, None)
