"""Measure the files of an instance, as often as its processes write enough to reach the limit.

Measuring reads the status of each file. How much the processes have written is in ``/proc/PID/io``, which costs little,
and is never below what their files have grown by (except by `fallocate`, which writes nothing). So the files are
measured when the written bytes could have used up the rest of the limit, and else every five seconds. For some
file systems, such as tmpfs, the kernel does not count written bytes. There the decrease of free space is used instead.

A file system also runs out of inodes, which empty files use too. An instance may have the same share of them as of the
file system's space.
"""

import contextlib
import mmap
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidemill._shared.trees import Entry, walk
from tidemill.instance.directory import InstanceDirectory
from tidemill.sandbox import Overlay

_REGULARLY_S = 5.0
_REGULAR_PAUSE = 20
"""Minimum pause before a regular measurement, as a multiple of its duration: it takes a twentieth of a processor."""
_FEWEST_INODES = 10_000
_BLOCK_BYTES = 512


@dataclass(frozen=True, slots=True)
class Used:
    """What the files of an instance use.

    Attributes:
        size_bytes: Disk space. Includes files that were deleted while a process has them open.
        inodes: Number of files, directories and links.
    """

    size_bytes: int = 0
    inodes: int = 0


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """The limits of what the files of an instance use.

    Attributes:
        size_bytes: Disk space.
        inodes: Number of files, directories and links; None if the file system does not limit it.
    """

    size_bytes: int
    inodes: int | None

    @classmethod
    def of(cls, size_bytes: int, directory: Path) -> "DiskLimit":
        """Return the limits for a size: the inodes are the same share of the file system, at least 10,000.

        Args:
            directory: Any directory of the file system.

        Returns:
            The limit; without inodes where the file system counts none.
        """
        disk = os.statvfs(directory)
        if not disk.f_files:
            return cls(size_bytes, None)
        return cls(size_bytes, max(_FEWEST_INODES, disk.f_files * size_bytes // max(1, disk.f_blocks * disk.f_frsize)))

    def exceeded_by(self, used: Used) -> bool:
        """Return whether files use more than the limit, in bytes or in inodes."""
        return used.size_bytes > self.size_bytes or (self.inodes is not None and used.inodes > self.inodes)


class DiskUse:
    """Measures what the files of an instance use.

    Args:
        now_s: Returns the time on a monotonic clock, in seconds.
    """

    def __init__(
        self, directory: InstanceDirectory, limit: DiskLimit, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = directory
        self._limit = limit
        self._now_s = now_s
        self._used = Used()
        self._ended_s = -float("inf")
        self._took_s = 0.0
        self._written: dict[int, int] = {}
        self._written_since = 0
        self._free = _Free()
        self._counts_writes = _counts_writes(directory.path)

    def is_due(self, pids: Iterable[int]) -> bool:
        """Return whether the files must be measured now.

        Args:
            pids: The processes of the instance, with the one that waits for them. Called several times a second.
        """
        written = {pid: _written_bytes(pid) for pid in pids}
        # What a process wrote becomes part of its parent's count when it has ended, and is then counted again here.
        self._written_since += sum(max(0, count - self._written.get(pid, 0)) for pid, count in written.items())
        self._written = written
        waited_s = self._now_s() - self._ended_s
        if waited_s >= max(_REGULARLY_S, _REGULAR_PAUSE * self._took_s):
            return True
        free = _Free.of(self._directory.path)
        grown_bytes = self._written_since if self._counts_writes else max(0, self._free.size_bytes - free.size_bytes)
        return waited_s >= self._took_s and self._limit.exceeded_by(
            Used(
                size_bytes=self._used.size_bytes + grown_bytes,
                inodes=self._used.inodes + max(0, self._free.inodes - free.inodes),
            )
        )

    def measure(self, pids: Iterable[int]) -> Used:
        """Measure the files. The processes may change them meanwhile.

        Args:
            pids: The processes that may have deleted files open.
        """
        begun_s, self._written_since, self._free = self._now_s(), 0, _Free.of(self._directory.path)
        size_bytes = inodes = 0
        linked: set[tuple[int, int]] = set()
        devices: set[int] = set()
        for status in self._statuses(devices):
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                identity = status.st_dev, status.st_ino
                if identity in linked:
                    continue
                linked.add(identity)
            size_bytes += status.st_blocks * _BLOCK_BYTES
            inodes += 1
        for status in _deleted_files(pids, devices):
            size_bytes += status.st_blocks * _BLOCK_BYTES
            inodes += 1
        self._ended_s = self._now_s()
        self._took_s = self._ended_s - begun_s
        self._used = Used(size_bytes, inodes)
        return self._used

    def _statuses(self, devices: set[int]) -> Iterator[os.stat_result]:
        """Yield the status of everything that the instance has written; add the devices of the directories."""
        directory = self._directory
        views = directory.views.glob(f"*/{Overlay.WRITES}")
        for top in (directory.ml, directory.home, directory.tmp, directory.mounted_checkpoints, *views):
            with contextlib.suppress(OSError):
                devices.add(top.lstat().st_dev)
                yield from _statuses_of(walk(top, on_error=lambda error: None))


def _statuses_of(entries: Iterable[Entry]) -> Iterator[os.stat_result]:
    for entry in entries:
        with contextlib.suppress(OSError):
            yield entry.status()


@dataclass(frozen=True, slots=True)
class _Free:
    """What a file system has left."""

    size_bytes: int = 0
    inodes: int = 0

    @classmethod
    def of(cls, directory: Path) -> "_Free":
        disk = os.statvfs(directory)
        return cls(disk.f_bfree * disk.f_frsize, disk.f_ffree)


def _counts_writes(directory: Path) -> bool:
    """Return whether the kernel counts what is written to files in a directory; tries it out with one page."""
    before = _written_bytes("thread-self")
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        file.write(bytes(mmap.PAGESIZE))
        return _written_bytes("thread-self") > before
    return False


def _written_bytes(pid: int | str) -> int:
    """Return how many bytes a process and its ended children have written to files; 0 if that cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/io").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(b"write_bytes:")), 0)


def _deleted_files(pids: Iterable[int], devices: set[int]) -> Iterator[os.stat_result]:
    """Yield the status of each file on the devices, or on an overlay, that was deleted while a process has it open."""
    found: set[tuple[int, int]] = set()
    for pid in pids:
        for fd in _descriptors(pid):
            try:
                status = os.stat(fd)  # noqa: PTH116 - called often
            except OSError:
                continue
            identity = status.st_dev, status.st_ino
            if status.st_nlink or not stat.S_ISREG(status.st_mode) or identity in found:
                continue
            # Files in memory (memfd, /dev/shm) have no names on a disk either.
            if status.st_dev in devices or status.st_dev in _overlays(pid):
                found.add(identity)
                yield status


def _descriptors(pid: int) -> list[str]:
    try:
        return [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]  # noqa: PTH208 - called often
    except OSError:
        return []


def _overlays(pid: int) -> set[int]:
    """Return the devices of the overlays that a process sees; what it writes there is on the disk of the instance."""
    try:
        lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    except OSError:
        return set()
    numbers = [line.split()[2].split(":") for line in lines if line.partition(" - ")[2].startswith("overlay ")]
    return {os.makedev(int(major), int(minor)) for major, minor in numbers}
