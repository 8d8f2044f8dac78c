"""Find the GPUs of this machine, and assign them to instances."""

import shutil
import subprocess
import threading
from collections import Counter
from dataclasses import dataclass

from tidemill.core.instances import InstanceRef
from tidemill.errors import LaunchError

_TIMEOUT_S = 30
_FIELDS = ("index", "uuid", "name", "memory.total", "driver_version")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as nvidia-smi describes it.

    Attributes:
        index: Index among the GPUs of the machine.
        uuid: ``GPU-...``, a name for CUDA_VISIBLE_DEVICES that does not depend on which other GPUs are visible.
        memory: Size with its unit, e.g. ``15360 MiB``.
        driver: Version of the driver.
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
    """Assigns GPUs to instances. Methods may be called from several threads.

    Args:
        devices: The GPUs, in the format of CUDA_VISIBLE_DEVICES.
        shared: Whether several instances may use the same GPU. Then each instance gets the GPUs with the fewest
            instances. Default: false.
    """

    def __init__(self, devices: tuple[str, ...], *, shared: bool = False) -> None:
        self.devices = devices
        self._shared = shared
        self._taken: dict[InstanceRef, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def take(self, ref: InstanceRef, count: int) -> tuple[str, ...]:
        """Assign ``count`` GPUs to an instance until `give_back`. A repeated call returns the same GPUs.

        Raises:
            LaunchError: Fewer than ``count`` GPUs are free.
        """
        with self._lock:
            if ref not in self._taken:
                users = Counter(device for devices in self._taken.values() for device in devices)
                # The sort is stable, so an instance gets neighboring GPUs if possible.
                by_use = sorted(self.devices, key=lambda device: users[device])
                free = by_use if self._shared else [device for device in by_use if not users[device]]
                if len(free) < count:
                    raise LaunchError(f"{count} GPUs are needed, and {len(free)} of {len(self.devices)} are free")
                chosen = set(free[:count])
                self._taken[ref] = tuple(device for device in self.devices if device in chosen)
            return self._taken[ref]

    def note(self, ref: InstanceRef, devices: tuple[str, ...]) -> None:
        """Record the GPUs of an instance that an earlier service launched.

        Args:
            devices: Numbers of its GPUs; none is no error.
        """
        if devices:
            with self._lock:
                self._taken[ref] = devices

    def give_back(self, ref: InstanceRef) -> None:
        """Free the GPUs of an instance that has ended.

        Args:
            ref: The attempt; one without GPUs is no error.
        """
        with self._lock:
            self._taken.pop(ref, None)
