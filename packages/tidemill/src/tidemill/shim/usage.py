"""What the processes of an instance use, from the files of the kernel."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tidemill._shared.descendants import descendants
from tidemill.instance.process_tree import namespace_init

_TICKS_S = os.sysconf("SC_CLK_TCK")
_NETWORK_DEVICES = Path("/sys/class/net")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCounts:
    """One reading. All but the memory only grow.

    Attributes:
        cpu_s: Processor time of all processes, also of those that have ended.
        memory_bytes: Anonymous memory of the running processes; shared memory of the process that has most of it.
        read_bytes: Bytes that the processes read from disks.
        written_bytes: Bytes that they wrote to disks.
        received_bytes: Bytes received by all interfaces but loopback.
    """

    cpu_s: float
    memory_bytes: int
    read_bytes: int
    written_bytes: int
    received_bytes: int
    sent_bytes: int


class InstanceUsage:
    """Reads the use of the descendants of this process.

    Args:
        own_network: Whether the instance has a network of its own. Else the network of this process counts.
        forked_elsewhere: Whether processes may run in the instance's pid namespace that are no descendants, because
            another process forked the script (warm start).
    """

    def __init__(self, *, own_network: bool = False, forked_elsewhere: bool = False) -> None:
        self._own_network = own_network
        self._forked_elsewhere = forked_elsewhere
        self._network = (0, 0)

    def read(self) -> UsageCounts:
        """Return the counts so far."""
        pids = self._pids()
        ticks, anonymous, shared = _ended_ticks(os.getpid()), 0, 0
        read, written = _disk_bytes(os.getpid())  # includes those of ended processes
        for pid in pids:
            ticks += _ticks(pid)
            memory = _memory(pid)
            anonymous, shared = anonymous + memory[0], max(shared, memory[1])
            its = _disk_bytes(pid)
            read, written = read + its[0], written + its[1]
        received, sent = self._network_bytes(pids)
        return UsageCounts(
            cpu_s=ticks / _TICKS_S,
            memory_bytes=anonymous + shared,
            read_bytes=read,
            written_bytes=written,
            received_bytes=received,
            sent_bytes=sent,
        )

    def _pids(self) -> list[int]:
        pids = processes_below(os.getpid())
        if not self._forked_elsewhere:
            return pids
        first = namespace_init(os.getpid())
        if first is None:
            return pids
        namespace = _namespace(first, "pid")
        every = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - names only
        return list(dict.fromkeys([*pids, *(pid for pid in every if _namespace(pid, "pid") == namespace)]))

    def _network_bytes(self, pids: Iterable[int]) -> tuple[int, int]:
        if not self._own_network:
            return _interfaces(os.getpid(), machine=True)
        machine = _namespace(os.getpid(), "net")
        for pid in pids:
            if _namespace(pid, "net") not in ("", machine):
                self._network = _interfaces(pid, machine=False)
                break
        return self._network  # without a process in it, nothing has changed since the last reading


def processes_below(root: int, *, proc: Path = Path("/proc")) -> list[int]:
    """Return the descendants of a process.

    Most kernels list the children of each thread, so the cost does not grow with the processes of the machine.

    Args:
        root: Process id; not in the result.
        proc: Where the kernel's files are.
    """
    if not (proc / f"{root}/task/{root}/children").exists():
        return descendants(root)
    found: dict[int, None] = {}  # a process that gets another parent meanwhile is met twice
    left = [root]
    while left:
        tasks = f"{proc}/{left.pop()}/task"
        children: list[int] = []
        with contextlib.suppress(OSError):
            for thread in os.listdir(tasks):  # noqa: PTH208 - called often
                children += map(int, Path(f"{tasks}/{thread}/children").read_bytes().split())
        left += [child for child in children if child not in found]
        found |= dict.fromkeys(children)
    return list(found)


def _ticks(pid: int) -> int:
    """Return the processor time of a process and of its ended children."""
    return sum(_stat(pid)[11:15])


def _ended_ticks(pid: int) -> int:
    """Return the processor time of the ended children of a process."""
    return sum(_stat(pid)[13:15])


def _stat(pid: int) -> list[int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
    return [int(field) if place else 0 for place, field in enumerate(fields[:15])]


def _memory(pid: int) -> tuple[int, int]:
    """Return the anonymous and the shared resident memory of a process."""
    found = {b"RssAnon": 0, b"RssShmem": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            name, _, value = line.partition(b":")
            if name in found:
                found[name] = int(value.split()[0]) * 1024
    return found[b"RssAnon"], found[b"RssShmem"]


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Return what a process and its ended children have read from disks and written to disks."""
    found = {b"read_bytes": 0, b"write_bytes": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/io").read_bytes().splitlines():
            name, _, value = line.partition(b":")
            if name in found:
                found[name] = int(value)
    return found[b"read_bytes"], found[b"write_bytes"]


def _namespace(pid: int, kind: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115 - called often
    except OSError:
        return ""


def _interfaces(pid: int, *, machine: bool) -> tuple[int, int]:
    """Return what the interfaces of a process's network have received and sent, without loopback.

    Args:
        machine: Whether it is the network of the machine: then only its devices count, if it has any, since a bridge
            or a tunnel counts the same bytes again.
    """
    counts: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]:
            name, _, values = line.partition(":")
            numbers = values.split()
            if name.strip() != "lo":
                counts[name.strip()] = (int(numbers[0]), int(numbers[8]))
    if machine:
        devices = {name: each for name, each in counts.items() if (_NETWORK_DEVICES / name / "device").exists()}
        counts = devices or counts
    return sum(each[0] for each in counts.values()), sum(each[1] for each in counts.values())
