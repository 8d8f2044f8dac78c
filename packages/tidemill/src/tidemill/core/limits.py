"""What a training instance may use of its machine: by the settings, and by its instance type."""

from dataclasses import dataclass

from tidemill.core.instance_types import instance_type

__all__ = ["InstanceLimits", "LimitPolicy"]

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLimits:
    """The limits of one instance. None: no limit.

    Attributes:
        memory_bytes: Memory of all its processes together.
        cpus: Processors that its processes run on.
        processes: Number of its processes.
        disk_bytes: Files that it writes.
        source: Where the limits come from, for messages, e.g. ``ml.m5.large``.
    """

    memory_bytes: int | None = None
    cpus: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None
    source: str = ""

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.memory_bytes, self.cpus, self.processes, self.disk_bytes))

    def __str__(self) -> str:
        named = (
            self.memory_bytes is not None and f"{self.memory_bytes // _MIB} MiB of memory",
            self.cpus is not None and f"{self.cpus} processors",
            self.processes is not None and f"{self.processes} processes",
            self.disk_bytes is not None and f"{self.disk_bytes // _MIB} MiB of files",
        )
        return ", ".join(name for name in named if name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """The settings from which the limits of an instance follow. A setting wins over the instance type.

    Attributes:
        memory_mib: Setting ``instance_memory_mib``.
        cpus: Setting ``instance_cpus``.
        processes: Setting ``instance_processes``.
        disk_mib: Setting ``instance_disk_mib``.
        by_type: Setting ``limit_to_instance_type``.
    """

    memory_mib: int | None = None
    cpus: int | None = None
    processes: int | None = None
    disk_mib: int | None = None
    by_type: bool = False

    def of(self, type_name: str, *, volume_gib: int | None) -> InstanceLimits:
        """Return the limits of an instance.

        Args:
            type_name: Its instance type. One that the table does not have limits neither memory nor processors.
            volume_gib: VolumeSizeInGB of the request.
        """
        has = instance_type(type_name if self.by_type else "")
        volume_bytes = volume_gib * _GIB if self.by_type and volume_gib else None
        return InstanceLimits(
            memory_bytes=has.memory_bytes if self.memory_mib is None else self.memory_mib * _MIB,
            cpus=has.num_cpus if self.cpus is None else self.cpus,
            processes=self.processes,
            disk_bytes=volume_bytes if self.disk_mib is None else self.disk_mib * _MIB,
            source=type_name if self.by_type else "settings",
        )
