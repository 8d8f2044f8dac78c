"""The identity of a process, safe against reused pids: boot id, pid and start time."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process of one boot.

    Attributes:
        boot_id: The kernel's random id of this boot.
        start_ticks: Start time in clock ticks since boot (field 22 of ``/proc/PID/stat``).
    """

    boot_id: str
    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int) -> "ProcessId | None":
        """Return the identity of the live process ``pid``; None if it has ended or is a zombie.

        Raises:
            OSError: The identity cannot be read now, e.g. because this process has too many open files.
        """
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The command name may contain spaces and parentheses, so count fields from its closing parenthesis.
        fields = stat.rpartition(")")[2].split()
        if fields[0] in "ZX":
            return None
        return cls(_boot_id(), pid, int(fields[19]))

    @classmethod
    def own(cls) -> "ProcessId":
        """Return the identity of the calling process."""
        own = cls.of(os.getpid())
        if own is None:
            raise RuntimeError("cannot read /proc/self/stat; is /proc mounted?")
        return own

    @property
    def alive(self) -> bool:
        """Whether this process is still running; also true if only its number can be found out now.

        For decisions that a process has ended. Before a signal, ask `certainly_alive`.
        """
        try:
            return ProcessId.of(self.pid) == self
        except OSError:
            return _exists(self.pid)

    @property
    def certainly_alive(self) -> bool:
        """Whether this process is still running, and its number is certainly not that of another one."""
        try:
            return ProcessId.of(self.pid) == self
        except OSError:
            return False

    @property
    def has_ended_here(self) -> bool:
        """Whether this process ran on this machine since its boot, and has ended. False for other machines."""
        return self.boot_id == _boot_id() and not self.alive


def _exists(pid: int) -> bool:
    """Return whether a process has this number, without opening a file."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@functools.cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
