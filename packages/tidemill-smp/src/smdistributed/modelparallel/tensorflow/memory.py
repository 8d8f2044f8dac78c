"""The memory that this process can still allocate."""

from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def available_bytes(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the bytes that the machine, and the cgroup of this process, have left; None if neither is known.

    Args:
        proc: The directory with the kernel's `meminfo` and `self/cgroup`.
        cgroups: The directory of version 2 of the cgroups.
    """
    found: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = (proc / "meminfo").read_text("ascii").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError, StopIteration):
        lines = (proc / "self" / "cgroup").read_text("utf-8").splitlines()
        own = cgroups / next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        found.append(int((own / "memory.max").read_text("ascii")) - int((own / "memory.current").read_text("ascii")))
    return min(found, default=None)
