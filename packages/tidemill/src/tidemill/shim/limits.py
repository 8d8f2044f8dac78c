"""Enforce the limits of an instance: measure its processes and files while it runs, and kill it if it exceeds a limit.

If the service may create control groups (`tidemill.shim.cgroup`), the kernel enforces the limit of memory. Else memory
is measured four times a second. Processes and files (`tidemill.shim.disk_use`) are always measured, which needs no
rights, so an instance may exceed these limits for a moment. Measured memory is the anonymous and shared memory of all
processes: memory that several processes share counts once. The page cache is not counted.

Resource limits (``setrlimit``) are no substitute: they apply to each process, not to an instance, and the limit of
processes counts all processes of the user.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

from tidemill.core.limits import InstanceLimits
from tidemill.instance.directory import InstanceDirectory
from tidemill.instance.process_tree import descendants
from tidemill.instance.spec import InstanceSpec
from tidemill.shim.cgroup import Cgroup, CgroupUnavailable, oom_kills
from tidemill.shim.disk_use import DiskLimit, DiskUse, Used
from tidemill.shim.failures import AlgorithmFailure, ClientFailure, InstanceFailure

_MEASURED_EVERY_S = 0.25
_SEARCHED_EVERY_S = 1.0
"""Time between searches for new processes. A search reads a file per process of the machine."""
_WRITERS_SEARCHED_EVERY_S = 0.5
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MIB = 1 << 20
_COUNTED_MEMORY = (b"Pss_Anon:", b"Pss_Shmem:")


class LimitWatch:
    """Watches the descendants of this process, and kills them if they exceed a limit.

    Args:
        note: Logs how the limit of memory is enforced.

    Attributes:
        cgroup: The control group that the processes must enter when they start; None without one.
        failure: The failure for the first exceeded limit; None if no limit was exceeded.
        out_of_memory: Whether the kernel has killed a process for lack of memory, at a limit or of the whole machine.
    """

    def __init__(self, limits: InstanceLimits, directory: InstanceDirectory, note: Callable[[str], None]) -> None:
        self._limits = limits
        self._directory = directory
        self._note = note
        self.cgroup: Cgroup | None = None
        self._ended = threading.Event()
        self._peak_bytes = 0
        self.failure: InstanceFailure | None = None
        self.out_of_memory = False

    @contextlib.contextmanager
    def watching(self) -> Generator[None]:
        """Watch during the context, and set ``failure`` if a limit is exceeded. May be entered again afterwards."""
        limits = self._limits
        self._ended.clear()
        kills = oom_kills()
        if limits.memory_bytes is not None:
            self.cgroup = self._created_cgroup(limits.memory_bytes)
        threads: list[threading.Thread] = []
        if limits.memory_bytes is not None or limits.processes is not None:
            threads.append(threading.Thread(target=self._watch_processes, name="limits", daemon=True))
        if limits.disk_bytes is not None:
            disk = threading.Thread(target=self._watch_disk, args=(limits.disk_bytes,), name="disk limit", daemon=True)
            threads.append(disk)
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
            if self.cgroup is not None:
                # The script may have ended since the last measurement because the kernel killed a process.
                self._check_cgroup(self.cgroup)
                self.out_of_memory |= self.cgroup.has_killed()
                self.cgroup.remove()
                self.cgroup = None
            self.out_of_memory |= oom_kills() > kills

    def _created_cgroup(self, memory_bytes: int) -> Cgroup | None:
        try:
            cgroup = Cgroup(memory_bytes=memory_bytes)
        except CgroupUnavailable as reason:
            self._note(f"tidemill: the memory of this instance is measured four times a second: {reason}")
            return None
        self._note(f"tidemill: the kernel limits the memory of this instance (control group v{cgroup.layout})")
        return cgroup

    def _watch_processes(self) -> None:
        pids: list[int] = []
        search_s = 0.0
        while not self._ended.wait(_MEASURED_EVERY_S):
            if self.cgroup is not None:
                self._check_cgroup(self.cgroup)
                if self._limits.processes is None:
                    continue
            if time.monotonic() >= search_s:
                pids = descendants(os.getpid())
                search_s = time.monotonic() + _SEARCHED_EVERY_S
            limits = self._limits
            if limits.processes is not None and len(pids) > limits.processes:
                self._end(
                    AlgorithmFailure(
                        f"TooManyProcesses: the instance was killed with {len(pids)} processes; its limit is"
                        f" {limits.processes} ({limits.source})"
                    )
                )
            elif self.cgroup is None and self._uses_too_much_memory(pids):
                self._end(self._out_of_memory(self._peak_bytes))

    def _check_cgroup(self, cgroup: Cgroup) -> None:
        """Kill all processes if the kernel has killed one: layout v1 kills only the largest."""
        if self.failure is None and cgroup.exceeded():
            self._end(self._out_of_memory(cgroup.peak_bytes()))

    def _out_of_memory(self, peak_bytes: int) -> InstanceFailure:
        limit_bytes = self._limits.memory_bytes or 0
        return AlgorithmFailure(
            "OutOfMemory: Process killed by SIGKILL (signal 9): the instance has a memory limit of"
            f" {limit_bytes // _MIB} MiB ({self._limits.source}), and its peak was"
            f" {peak_bytes // _MIB} MiB. Use less memory, or choose a larger limit or instance type"
        )

    def _uses_too_much_memory(self, pids: list[int]) -> bool:
        limit_bytes = self._limits.memory_bytes
        if limit_bytes is None:
            return False
        # Read the resident size first: it is never below the counted size, and takes a hundredth of the time to read.
        used_bytes = sum(map(_resident_bytes, pids))
        if used_bytes > limit_bytes:
            used_bytes = sum(map(_counted_bytes, pids))
        self._peak_bytes = max(self._peak_bytes, used_bytes)
        return used_bytes > limit_bytes

    def _watch_disk(self, limit_bytes: int) -> None:
        shim, limit = os.getpid(), DiskLimit.of(limit_bytes, self._directory.path)
        disk = DiskUse(self._directory, limit)
        pids: list[int] = []
        search_s = 0.0
        while not self._ended.wait(_MEASURED_EVERY_S):
            if time.monotonic() >= search_s:
                pids = descendants(shim)
                search_s = time.monotonic() + _WRITERS_SEARCHED_EVERY_S
            if disk.is_due((shim, *pids)):
                self._check_disk(disk.measure(pids), limit)
        if self.failure is None and disk.is_due((shim,)):  # what the script wrote just before its end
            self._check_disk(disk.measure(()), limit)

    def _check_disk(self, used: Used, limit: DiskLimit) -> None:
        if not limit.exceeded_by(used):
            return
        if used.size_bytes > limit.size_bytes:
            what = f"the files of the instance take {used.size_bytes // _MIB} MiB; their limit is"
            what += f" {limit.size_bytes // _MIB} MiB ({self._limits.source}). Write less"
        else:
            what = f"the instance has {used.inodes:,} files and directories; its share of the file system is"
            what += f" {limit.inodes:,} ({self._limits.source}). Write fewer files"
        self._end(ClientFailure(f"no space left on device: {what}, or ask for a larger volume"))

    def _end(self, failure: InstanceFailure) -> None:
        self.failure = self.failure or failure
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def chosen_cpus(spec: InstanceSpec) -> frozenset[int] | None:
    """Return the processors for an instance; None if it may use all.

    Instances of a job use different processors as far as there are enough. Jobs start at different processors.
    """
    present, limit = sorted(os.sched_getaffinity(0)), spec.limits.cpus
    if limit is None or limit >= len(present):
        return None
    start = (int(spec.ref.job_id, 16) + spec.ref.instance_index * limit) % len(present)
    return frozenset((present[start:] + present[:start])[:limit])


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _counted_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_COUNTED_MEMORY))
