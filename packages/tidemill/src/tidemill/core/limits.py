"""The limits of an instance, from the settings and its instance type."""

from dataclasses import dataclass

from tidemill.core.instance_types import instance_type

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLimits:
    """The limits of one instance. None: no limit.

    Attributes:
        memory_bytes: Memory of all processes together.
        cpus: Number of processors on which the processes run.
        disk_bytes: Size of all files that the instance writes.
        source: Origin of the limits, for messages: an instance type, e.g. ``ml.m5.large``, or ``settings``.
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
    """The settings that determine the limits of an instance. A setting overrides the instance type."""

    memory_mib: int | None = None
    cpus: int | None = None
    processes: int | None = None
    disk_mib: int | None = None
    by_type: bool = False

    def of(self, type_name: str, *, volume_gib: int | None) -> InstanceLimits:
        """Return the limits of an instance.

        Args:
            type_name: The instance type; empty for an instance without a type. A type that is not in the table limits
                neither memory nor processors.
            volume_gib: VolumeSizeInGB of the request; None if the request has none.
        """
        table = instance_type(type_name if self.by_type else "")
        volume_bytes = volume_gib * _GIB if self.by_type and volume_gib else None
        return InstanceLimits(
            memory_bytes=table.memory_bytes if self.memory_mib is None else self.memory_mib * _MIB,
            cpus=table.num_cpus if self.cpus is None else self.cpus,
            processes=self.processes,
            disk_bytes=volume_bytes if self.disk_mib is None else self.disk_mib * _MIB,
            source=type_name if self.by_type and type_name else "settings",
        )
