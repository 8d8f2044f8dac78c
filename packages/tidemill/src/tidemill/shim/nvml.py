"""Read the use of GPUs by NVML, the library of NVIDIA's driver, opened at run time."""

import contextlib
import ctypes
from collections.abc import Sequence

from tidemill.instance.samples import GpuSample

LIBRARY = "libnvidia-ml.so.1"
_NAME_BYTES = 96


class NvmlUnavailable(Exception):
    """The library or a GPU cannot be used. The message is the reason."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The GPUs of one instance.

    Args:
        devices: What CUDA_VISIBLE_DEVICES names them by: UUIDs, or numbers of the machine's GPUs.
        library: Name or path of the library. Default: that of the driver.

    Attributes:
        names: Model of each GPU, e.g. ``NVIDIA H100``.
        memory_bytes: Memory of each GPU.

    Raises:
        NvmlUnavailable: The driver is missing, or does not know one of the GPUs.
    """

    def __init__(self, devices: Sequence[str], *, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlUnavailable(f"{library} cannot be opened: {error}") from error
        self._check("nvmlInit_v2", self._library.nvmlInit_v2())
        self._handles = [self._handle(device) for device in devices]
        self.names = tuple(map(self._name, self._handles))
        self.memory_bytes = tuple(self._memory(handle).total for handle in self._handles)

    def read(self) -> tuple[GpuSample, ...]:
        """Return the present use of each GPU, which includes that by other processes.

        The busy part is that of the driver's last measured period, of a sixth of a second to one second. It is 0 where
        the driver has none, as for a part of a GPU (MIG).

        Raises:
            NvmlUnavailable: A GPU cannot be read, e.g. because it has failed.
        """
        found: list[GpuSample] = []
        for handle in self._handles:
            used = _Utilization()
            with contextlib.suppress(NvmlUnavailable):
                call = self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(used))
                self._check("nvmlDeviceGetUtilizationRates", call)
            found.append(GpuSample(min(used.gpu, 100) / 100, self._memory(handle).used))
        return tuple(found)

    def close(self) -> None:
        """Close the library's connection to the driver."""
        self._library.nvmlShutdown()

    def _handle(self, device: str) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        if device.isdecimal():
            name, wanted = "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(device))
        else:
            name, wanted = "nvmlDeviceGetHandleByUUID", ctypes.c_char_p(device.encode())
        self._check(f"{name} {device}", getattr(self._library, name)(wanted, ctypes.byref(handle)))
        return handle

    def _name(self, handle: ctypes.c_void_p) -> str:
        text = ctypes.create_string_buffer(_NAME_BYTES)
        with contextlib.suppress(NvmlUnavailable):  # only the name is missing then
            self._check("nvmlDeviceGetName", self._library.nvmlDeviceGetName(handle, text, _NAME_BYTES))
        return text.value.decode(errors="replace") or "GPU"

    def _memory(self, handle: ctypes.c_void_p) -> _Memory:
        memory = _Memory()
        self._check("nvmlDeviceGetMemoryInfo", self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)))
        return memory

    def _check(self, call: str, status: int) -> None:
        if status:
            raise NvmlUnavailable(f"{call} answered {status}")
